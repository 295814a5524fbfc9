{{/* What no schema can say: values that contradict each other end the rendering, with the remedy. */}}
{{- define "harn.checks" -}}
{{- include "harn.checkKafka" . -}}
{{- include "harn.checkManifest" . -}}
{{- include "harn.checkReplicas" . -}}
{{- include "harn.checkSettings" . -}}
{{- include "harn.checkTurns" . -}}
{{- if and .Values.terminationGracePeriodSeconds (le (int .Values.terminationGracePeriodSeconds) (int .Values.drainSeconds)) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, expected more than drainSeconds (%d): handlers would be killed while they drain" (int .Values.terminationGracePeriodSeconds) (int .Values.drainSeconds)) -}}
{{- end -}}
{{- end -}}

{{- define "harn.checkKafka" -}}
{{- if not .Values.kafka.bootstrapServers -}}
{{- fail "kafka.bootstrapServers is empty, expected host:port[,host:port...] of your cluster" -}}
{{- end -}}
{{- if hasPrefix "SASL_" .Values.kafka.securityProtocol -}}
{{- if not (and .Values.kafka.sasl.mechanism .Values.kafka.sasl.existingSecret) -}}
{{- fail (printf "kafka.securityProtocol is %s, expected kafka.sasl.mechanism and kafka.sasl.existingSecret to be set with it" .Values.kafka.securityProtocol) -}}
{{- end -}}
{{- else if or .Values.kafka.sasl.mechanism .Values.kafka.sasl.existingSecret -}}
{{- fail (printf "kafka.sasl is set, expected kafka.securityProtocol to be SASL_PLAINTEXT or SASL_SSL, not %s" .Values.kafka.securityProtocol) -}}
{{- end -}}
{{- with .Values.topics.minInsyncReplicas -}}
{{- if gt (int .) (int $.Values.topics.replicationFactor) -}}
{{- fail (printf "topics.minInsyncReplicas is %d, expected at most topics.replicationFactor (%d)" (int .) (int $.Values.topics.replicationFactor)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "harn.checkManifest" -}}
{{- $given := list -}}
{{- if .Values.manifest.files -}}{{- $given = append $given "manifest.files" -}}{{- end -}}
{{- if .Values.manifest.existingConfigMap -}}{{- $given = append $given "manifest.existingConfigMap" -}}{{- end -}}
{{- if .Values.manifest.path -}}{{- $given = append $given "manifest.path" -}}{{- end -}}
{{- if gt (len $given) 1 -}}
{{- fail (printf "%s are set, expected one source of the manifest" (join " and " $given)) -}}
{{- end -}}
{{- if and (or .Values.roles.invoker.enabled .Values.roles.registry.enabled) (not $given) -}}
{{- fail "the roles registry and invoker need a manifest: set manifest.files, manifest.existingConfigMap or manifest.path" -}}
{{- end -}}
{{- if and .Values.manifest.files (not (hasKey .Values.manifest.files "harn.toml")) -}}
{{- fail "manifest.files has no harn.toml, expected the manifest under that name" -}}
{{- end -}}
{{- end -}}

{{- define "harn.checkReplicas" -}}
{{- $partitions := int .Values.topics.partitions -}}
{{- range $role := splitList " " (include "harn.partitionedRoles" .) -}}
{{- $values := index $.Values.roles $role -}}
{{- if $values.enabled -}}
{{- if gt (int $values.replicas) $partitions -}}
{{- fail (printf "roles.%s.replicas is %d, expected at most topics.partitions (%d): further members would own no partition" $role (int $values.replicas) $partitions) -}}
{{- end -}}
{{- if and $values.autoscaling.enabled (gt (int $values.autoscaling.maxReplicas) $partitions) -}}
{{- fail (printf "roles.%s.autoscaling.maxReplicas is %d, expected at most topics.partitions (%d): further members would own no partition" $role (int $values.autoscaling.maxReplicas) $partitions) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $role, $values := .Values.roles -}}
{{- if and $values.autoscaling.enabled (gt (int $values.autoscaling.minReplicas) (int $values.autoscaling.maxReplicas)) -}}
{{- fail (printf "roles.%s.autoscaling.minReplicas is %d, expected at most maxReplicas (%d)" $role (int $values.autoscaling.minReplicas) (int $values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "harn.checkSettings" -}}
{{- $ours := dict "KAFKA_BOOTSTRAP_SERVERS" "kafka.bootstrapServers" "KAFKA_SECURITY_PROTOCOL" "kafka.securityProtocol" "KAFKA_SASL_MECHANISM" "kafka.sasl.mechanism" "KAFKA_SASL_USERNAME" "kafka.sasl.existingSecret" "KAFKA_SASL_PASSWORD" "kafka.sasl.existingSecret" "KAFKA_SSL_CA_LOCATION" "kafka.tls.existingSecret" "SCHEMA_REGISTRY_URL" "schemaRegistry.url" "HARN_PARTITIONS" "topics.partitions" "HARN_REPLICATION_FACTOR" "topics.replicationFactor" "HARN_MIN_INSYNC_REPLICAS" "topics.minInsyncReplicas" "HARN_STORE" "store.kind" "HARN_DRAIN_MS" "drainSeconds" "HARN_LOG_LEVEL" "log.level" "HARN_LOG_FORMAT" "log.format" "HARN_HTTP_PORT" "ingest.port" "HARN_SECRETS_DIR" "ingest.webhooks.existingSecret" "HARN_METRICS_PORT" "metrics.port" "AGENT_TURNS_API" "turns.api" "AGENT_DISPATCH_BACKEND" "turns.api" -}}
{{- range $name, $_ := .Values.settings -}}
{{- if hasKey $ours $name -}}
{{- fail (printf "settings.%s is set, expected the value %s instead" $name (get $ours $name)) -}}
{{- end -}}
{{- if has $name (list "HARN_STATE_DIR" "HARN_INSTANCE_ID" "HARN_HTTP_HOST" "HARN_METRICS_HOST") -}}
{{- fail (printf "settings.%s is set, but the chart alone sets it" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "harn.checkTurns" -}}
{{- $isDatabase := eq .Values.turns.backend "postgres" -}}
{{- if and $isDatabase (not .Values.turns.database.existingSecret) -}}
{{- fail "turns.backend is postgres, expected turns.database.existingSecret to be set with it: a secret that holds the address" -}}
{{- end -}}
{{- if and .Values.turns.database.existingSecret (not $isDatabase) -}}
{{- fail (printf "turns.database is set, expected turns.backend to be postgres, not %s" .Values.turns.backend) -}}
{{- end -}}
{{- if and .Values.turns.worker.path .Values.turns.worker.existingConfigMap -}}
{{- fail "turns.worker.path and turns.worker.existingConfigMap are set, expected one source of the manifest" -}}
{{- end -}}
{{- $scaling := .Values.turns.worker.autoscaling -}}
{{- if and .Values.turns.worker.enabled $scaling.enabled -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "turns.worker.autoscaling.minReplicas is %d, expected at most maxReplicas (%d)" (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
{{- $turnPartitions := 6 -}}
{{- if hasKey .Values.settings "AGENT_TURNS_PARTITIONS" -}}
{{- $turnPartitions = int .Values.settings.AGENT_TURNS_PARTITIONS -}}
{{- end -}}
{{- if and (not $isDatabase) (gt (int $scaling.maxReplicas) $turnPartitions) -}}
{{- fail (printf "turns.worker.autoscaling.maxReplicas is %d, expected at most AGENT_TURNS_PARTITIONS (%d): further workers would own no partition" (int $scaling.maxReplicas) $turnPartitions) -}}
{{- end -}}
{{- end -}}
{{- end -}}
