# The image of every role: `docker build -t harn-streams:0.1.0 .`
#
# Your handlers, and what they need, go on top of it; the chart's value `manifest.path` is then
# /app/harn.toml:
#
#     FROM harn-streams:0.1.0
#     USER root
#     COPY handlers/ /app/
#     RUN pip --python /opt/harn/bin/python install --no-cache-dir --requirement requirements.txt
#     USER 10001:10001

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml requirements.lock README.md LICENSE ./
# Of the lock, what running needs: developers' tools stay out, versions and hashes stay the same.
RUN pip install --no-cache-dir "uv==0.13.*" \
 && uv pip compile --quiet --no-header --no-annotate --generate-hashes --extra postgres \
      --constraint requirements.lock pyproject.toml --output-file /runtime.lock \
 && uv venv --quiet /opt/harn \
 && uv pip install --quiet --no-cache --python /opt/harn --require-hashes --requirement /runtime.lock
COPY streams streams
COPY schemas schemas
COPY topology topology
COPY examples examples
RUN uv pip install --quiet --no-cache --python /opt/harn --no-deps \
      --build-constraints requirements.lock . \
 && /opt/harn/bin/python -m compileall -q /opt/harn

FROM python:3.12-slim
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp harn \
 && install -d -o harn -g harn /var/lib/harn
COPY --from=build /opt/harn /opt/harn
ENV PATH=/opt/harn/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HARN_STATE_DIR=/var/lib/harn
WORKDIR /app
USER 10001:10001
EXPOSE 8080 9464
ENTRYPOINT ["harn"]
CMD ["--help"]
