{{- define "harn.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of every name; short enough that no suffix takes one past 63 characters. */}}
{{- define "harn.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "harn.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "harn.selectorLabels" -}}
app.kubernetes.io/name: {{ include "harn.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "harn.labels" -}}
{{ include "harn.selectorLabels" . }}
app.kubernetes.io/part-of: harn-streams
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "harn.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "harn.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "harn.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Roles that fold a mailbox and hold rows; the others are edges. */}}
{{- define "harn.stageRoles" -}}registry inbox dispatch scheduler{{- end -}}

{{/* Roles whose members share the partitions of a topic with `topics.partitions`. */}}
{{- define "harn.partitionedRoles" -}}inbox dispatch invoker scheduler{{- end -}}

{{/* Roles that load the manifest. */}}
{{- define "harn.manifestRoles" -}}registry invoker{{- end -}}

{{- define "harn.manifestConfigMap" -}}
{{- if .Values.manifest.existingConfigMap -}}
{{- .Values.manifest.existingConfigMap -}}
{{- else if .Values.manifest.files -}}
{{- include "harn.fullname" . }}-manifest
{{- end -}}
{{- end -}}

{{- define "harn.manifestPath" -}}
{{- default "/etc/harn/manifest/harn.toml" .Values.manifest.path -}}
{{- end -}}

{{/* Stopping takes the drain, then last commits and acks; 30 s after it a process ends itself. */}}
{{- define "harn.gracePeriod" -}}
{{- if .Values.terminationGracePeriodSeconds -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- else -}}
{{- add (int .Values.drainSeconds) (int .Values.ingest.preStopSeconds) 35 -}}
{{- end -}}
{{- end -}}

{{/* A value as a variable holds it: numbers come in as floats, which print as 6.048e+08. */}}
{{- define "harn.plain" -}}
{{- if kindIs "float64" . -}}{{ int64 . | toString }}{{- else -}}{{ toString . }}{{- end -}}
{{- end -}}

{{/* Variables that say which cluster, which topics and how to log: every command needs them. */}}
{{- define "harn.env" -}}
- name: KAFKA_BOOTSTRAP_SERVERS
  value: {{ .Values.kafka.bootstrapServers | quote }}
- name: KAFKA_SECURITY_PROTOCOL
  value: {{ .Values.kafka.securityProtocol | quote }}
{{- if hasPrefix "SASL_" .Values.kafka.securityProtocol }}
- name: KAFKA_SASL_MECHANISM
  value: {{ .Values.kafka.sasl.mechanism | quote }}
- name: KAFKA_SASL_USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ .Values.kafka.sasl.existingSecret | quote }}
      key: {{ .Values.kafka.sasl.usernameKey | quote }}
- name: KAFKA_SASL_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .Values.kafka.sasl.existingSecret | quote }}
      key: {{ .Values.kafka.sasl.passwordKey | quote }}
{{- end }}
{{- if .Values.kafka.tls.existingSecret }}
- name: KAFKA_SSL_CA_LOCATION
  value: /etc/harn/tls/ca.crt
{{- end }}
{{- with .Values.schemaRegistry.url }}
- name: SCHEMA_REGISTRY_URL
  value: {{ . | quote }}
{{- end }}
- name: HARN_PARTITIONS
  value: {{ int .Values.topics.partitions | quote }}
- name: HARN_REPLICATION_FACTOR
  value: {{ int .Values.topics.replicationFactor | quote }}
{{- with .Values.topics.minInsyncReplicas }}
- name: HARN_MIN_INSYNC_REPLICAS
  value: {{ int . | quote }}
{{- end }}
- name: HARN_STORE
  value: {{ .Values.store.kind | quote }}
- name: HARN_STATE_DIR
  value: /var/lib/harn
- name: HARN_DRAIN_MS
  value: {{ mul (int .Values.drainSeconds) 1000 | quote }}
- name: HARN_LOG_LEVEL
  value: {{ .Values.log.level | quote }}
- name: HARN_LOG_FORMAT
  value: {{ .Values.log.format | quote }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ include "harn.plain" $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Files that a process may write, and the ones that every command reads. */}}
{{- define "harn.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
- name: state
  mountPath: /var/lib/harn
{{- if .Values.kafka.tls.existingSecret }}
- name: tls
  mountPath: /etc/harn/tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "harn.volumes" -}}
- name: tmp
  emptyDir: {}
{{- if .Values.kafka.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ .Values.kafka.tls.existingSecret | quote }}
    items:
      - key: {{ .Values.kafka.tls.caKey | quote }}
        path: ca.crt
{{- end }}
{{- end -}}

{{/* What every pod has, whatever it runs.  Takes `root` and `pod`, the merged pod values. */}}
{{- define "harn.podBasics" -}}
automountServiceAccountToken: false
# Kubernetes would add HARN_..._PORT variables for services, which read like our settings.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* A container that runs one `harn` command to its end.  Takes `root`, `args` and `resources`. */}}
{{- define "harn.commandContainer" -}}
- name: harn
  image: {{ include "harn.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: {{ toJson .args }}
  env:
    {{- include "harn.env" .root | nindent 4 }}
  securityContext:
    {{- toYaml .root.Values.securityContext | nindent 4 }}
  {{- with .resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
    {{- include "harn.volumeMounts" .root | nindent 4 }}
{{- end -}}
