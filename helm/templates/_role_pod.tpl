{{/* The pod of one role, or of workers.  Takes `root`, `role`, its `values`, `isStage` and `stateful`;
of workers, `worker` is their entry in `workers`; of those that run turns, `turnWorker` is `turns.worker`. */}}
{{- define "harn.rolePod" -}}
{{- $ := .root -}}
{{- $pod := mergeOverwrite (deepCopy $.Values.pod) (default dict .values.pod) -}}
{{- $own := or .worker .turnWorker -}}
{{- $hasManifest := or .worker .turnWorker (has .role (splitList " " (include "harn.manifestRoles" $))) -}}
{{- $configMap := include "harn.manifestConfigMap" $ -}}
{{- with $own }}{{ $configMap = default "" .existingConfigMap }}{{ end -}}
metadata:
  labels:
    {{- include "harn.selectorLabels" $ | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
    {{- with $pod.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- $annotations := deepCopy $pod.annotations }}
  {{- if and $hasManifest (not $own) $.Values.manifest.files }}
  {{- $_ := set $annotations "checksum/manifest" (toJson $.Values.manifest.files | sha256sum) }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "harn.serviceAccountName" $ }}
  terminationGracePeriodSeconds: {{ include "harn.gracePeriod" $ }}
  {{- include "harn.podBasics" (dict "root" $ "pod" $pod) | nindent 2 }}
  containers:
    - name: harn
      image: {{ include "harn.image" $ | quote }}
      imagePullPolicy: {{ $.Values.image.pullPolicy }}
      {{- if .turnWorker }}
      command: [agent-dispatch-worker]
      {{- end }}
      args:
        # Kubernetes restarts what ends, and the hook makes the topics.
        {{- if .turnWorker }}
        - --no-provision
        - --workers
        - {{ int .turnWorker.slots | quote }}
        - --worker-id
        - $(POD_NAME)
        {{- if or .turnWorker.path .turnWorker.existingConfigMap }}
        - --config
        - {{ default "/etc/harn/manifest/harn.toml" .turnWorker.path }}
        {{- end }}
        {{- else if .worker }}
        - worker
        - run
        {{- range .worker.queues }}
        - {{ . | quote }}
        {{- end }}
        - --no-provision
        - --config
        - {{ default "/etc/harn/manifest/harn.toml" .worker.path }}
        - --concurrency
        - {{ int (default 16 .worker.concurrency) | quote }}
        - --claim-ttl
        - {{ default "5m" .worker.claimTtl | quote }}
        # A container that is restarted in its pod takes its own place.
        - --consumer-id
        - $(POD_NAME)
        {{- else }}
        - orchestrator
        - serve
        - --no-supervise
        - --no-provision
        - --role
        - {{ .role }}
        {{- if $hasManifest }}
        - --manifest
        - {{ include "harn.manifestPath" $ }}
        {{- end }}
        {{- end }}
      env:
        {{- include "harn.roleEnv" . | nindent 8 }}
      {{- with .values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- if eq .role "ingest" }}
        - name: http
          containerPort: {{ int $.Values.ingest.port }}
        {{- end }}
        - name: metrics
          containerPort: {{ int $.Values.metrics.port }}
      {{- include "harn.roleProbes" . | nindent 6 }}
      {{- if and (eq .role "ingest") (gt (int $.Values.ingest.preStopSeconds) 0) }}
      lifecycle:
        preStop:
          # Routing to this pod ends first, then its listening.
          exec:
            command: [sleep, {{ int $.Values.ingest.preStopSeconds | quote }}]
      {{- end }}
      securityContext:
        {{- toYaml $.Values.securityContext | nindent 8 }}
      {{- with .values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- include "harn.volumeMounts" $ | nindent 8 }}
        {{- if and $hasManifest $configMap }}
        - name: manifest
          mountPath: /etc/harn/manifest
          readOnly: true
        {{- end }}
        {{- if and (eq .role "ingest") $.Values.ingest.webhooks.existingSecret }}
        - name: webhooks
          mountPath: /etc/harn/secrets
          readOnly: true
        {{- end }}
  volumes:
    {{- include "harn.volumes" $ | nindent 4 }}
    {{- if not .stateful }}
    - name: state
      emptyDir: {}
    {{- end }}
    {{- if and $hasManifest $configMap }}
    - name: manifest
      configMap:
        name: {{ $configMap | quote }}
    {{- end }}
    {{- if and (eq .role "ingest") $.Values.ingest.webhooks.existingSecret }}
    - name: webhooks
      secret:
        secretName: {{ $.Values.ingest.webhooks.existingSecret | quote }}
    {{- end }}
{{- end -}}

{{- define "harn.roleEnv" -}}
{{- include "harn.env" .root }}
- name: HARN_METRICS_HOST
  value: 0.0.0.0
- name: HARN_METRICS_PORT
  value: {{ int .root.Values.metrics.port | quote }}
{{- if eq .role "ingest" }}
- name: HARN_HTTP_HOST
  value: 0.0.0.0
- name: HARN_HTTP_PORT
  value: {{ int .root.Values.ingest.port | quote }}
{{- if .root.Values.ingest.webhooks.existingSecret }}
- name: HARN_SECRETS_DIR
  value: /etc/harn/secrets
{{- end }}
{{- end }}
{{- if has .role (list "ingest" "turn-worker") }}
{{- include "harn.turnEnv" .root }}
{{- end }}
{{- if and (eq .role "ingest") .root.Values.turns.api }}
- name: AGENT_TURNS_API
  value: "on"
- name: AGENT_DISPATCH_BACKEND
  value: queue
{{- end }}
{{- if or .isStage .worker .turnWorker }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}
{{- if .isStage }}
# A container that is restarted in its pod takes its partitions again without a rebalance.
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: HARN_INSTANCE_ID
  value: $(POD_NAMESPACE).$(POD_NAME)
{{- end }}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What carries turns, for those that enqueue or run them. */}}
{{- define "harn.turnEnv" }}
- name: TASK_QUEUE_BACKEND
  value: {{ .Values.turns.backend }}
{{- if eq .Values.turns.backend "postgres" }}
- name: STATE_DB_URI
  valueFrom:
    secretKeyRef:
      name: {{ .Values.turns.database.existingSecret | quote }}
      key: {{ .Values.turns.database.uriKey | quote }}
{{- end }}
{{- end }}

{{/* Alive means that the process answers, whatever the broker does.  A stage is ready while it owns
its partitions, ingest while the broker would take an event. */}}
{{- define "harn.roleProbes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ ternary "http" "metrics" (eq .role "ingest") }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}
