{{/* Names, labels and what several manifests share. */}}

{{- define "sie.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sie.namespace" -}}{{ default .Release.Namespace .Values.global.namespace }}{{- end -}}

{{/* sie.labels: (dict "root" $ "component" C) */}}
{{- define "sie.labels" -}}
{{ include "sie.selector" . }}
app.kubernetes.io/part-of: sie
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "sie.selector" -}}
app.kubernetes.io/name: sie
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* sie.meta: name, namespace and labels. (dict "root" $ "component" C "name" N) */}}
{{- define "sie.meta" -}}
name: {{ .name }}
namespace: {{ include "sie.namespace" .root }}
labels:
  {{- include "sie.labels" . | nindent 2 }}
{{- end -}}

{{/* sie.image: (dict "root" $ "image" values "suffix" "-cpu") */}}
{{- define "sie.image" -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}{{ .suffix }}
{{- end -}}

{{- define "sie.serviceAccount" -}}
{{- $own := index .root.Values.serviceAccounts .component -}}
{{- if $own.name -}}{{ $own.name }}{{- else if $own.create -}}{{ include "sie.fullname" .root }}-{{ .component }}{{- else -}}default{{- end -}}
{{- end -}}

{{/* What every pod has: who it runs as, where its images come from, how it spreads.
     (dict "root" $ "component" C "values" V "priority" P) */}}
{{- define "sie.pod" -}}
serviceAccountName: {{ include "sie.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- include "sie.podSecurity" . | nindent 0 }}
{{- $class := default (get (index (.root.Values.priorityClasses) .priority | default dict) "name") .values.priorityClassName }}
{{- if or .values.priorityClassName .root.Values.priorityClasses.create }}
{{- with $class }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
{{- if .root.Values.topologySpread.enabled }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ .root.Values.topologySpread.zoneKey }}
    whenUnsatisfiable: {{ .root.Values.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "sie.selector" . | nindent 8 }}
        {{- with .also }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}
{{- end -}}

{{- define "sie.podSecurity" }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "sie.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* sie.probe: (dict "path" P "port" N "scheme" S "values" V) */}}
{{- define "sie.probe" -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  {{- if .scheme }}
  scheme: {{ .scheme }}
  {{- end }}
periodSeconds: {{ .values.periodSeconds }}
timeoutSeconds: {{ .values.timeoutSeconds }}
failureThreshold: {{ .values.failureThreshold }}
{{- end -}}

{{/* Settings by the names of their variables. */}}
{{- define "sie.settings" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ ternary (printf "%.15g" (float64 $value)) (toString $value) (kindIs "float64" $value) | quote }}
{{- end }}
{{- end -}}

{{/* sie.secretEnv: (dict "name" VARIABLE "secret" S "key" K) */}}
{{- define "sie.secretEnv" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end -}}

{{- define "sie.natsName" -}}{{ include "sie.fullname" . }}-nats{{- end -}}

{{- define "sie.natsURL" -}}
{{- if .Values.nats.install -}}
{{- ternary "tls" "nats" .Values.nats.tls.enabled }}://{{ include "sie.natsName" . }}.{{ include "sie.namespace" . }}.svc:4222
{{- else -}}
{{ .Values.nats.url }}
{{- end -}}
{{- end -}}

{{- define "sie.natsSecret" -}}
{{ default (printf "%s-nats-auth" (include "sie.fullname" .)) .Values.nats.auth.existingSecret }}
{{- end -}}

{{/* How a component reaches NATS. (dict "root" $ "user" gateway|worker|config) */}}
{{- define "sie.natsEnv" -}}
- name: SIE_NATS_URL
  value: {{ include "sie.natsURL" .root | quote }}
{{- if .root.Values.nats.auth.enabled }}
- name: SIE_NATS_USER
  value: sie-{{ .user }}
{{ include "sie.secretEnv" (dict "name" "SIE_NATS_PASSWORD" "secret" (include "sie.natsSecret" .root) "key" .user) }}
{{- end }}
{{- if .root.Values.nats.tls.enabled }}
- name: SIE_NATS_CA
  value: /etc/sie/nats-tls/ca.crt
{{- end }}
{{- end -}}

{{- define "sie.natsMount" -}}
{{- if .Values.nats.tls.enabled }}
- name: nats-tls
  mountPath: /etc/sie/nats-tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "sie.natsVolume" -}}
{{- if .Values.nats.tls.enabled }}
- name: nats-tls
  secret:
    secretName: {{ .Values.nats.tls.secretName }}
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
{{- end -}}

{{- define "sie.logEnv" -}}
- name: SIE_LOG_JSON
  value: {{ .Values.logging.json | quote }}
{{- if .Values.observability.tracing.enabled }}
- name: SIE_TRACING_ENABLED
  value: "true"
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .Values.observability.tracing.endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ .Values.observability.tracing.protocol }}
{{- end }}
{{- end -}}

{{/* The work streams, the same for gateways and sidecars. */}}
{{- define "sie.streamEnv" -}}
- name: SIE_STREAM_STORAGE
  value: {{ .Values.queueRouting.streamStorage }}
- name: SIE_STREAM_REPLICAS
  value: {{ .Values.queueRouting.streamReplicas | quote }}
- name: SIE_STREAM_MAX_BYTES
  value: {{ .Values.queueRouting.streamMaxBytes | int64 | quote }}
- name: SIE_STREAM_MAX_WAITING
  value: {{ .Values.queueRouting.streamMaxWaiting | int64 | quote }}
{{- if .Values.payloadStore.enabled }}
- name: SIE_PAYLOAD_STORE_URL
  value: {{ .Values.payloadStore.url | quote }}
{{- end }}
{{- end -}}

{{/* Where models come from, and the token for reading there. */}}
{{- define "sie.configEnv" -}}
- name: SIE_CONFIG_SERVICE_URL
  value: http://{{ include "sie.fullname" . }}-config.{{ include "sie.namespace" . }}.svc:{{ .Values.config.service.port }}
{{- if .Values.config.auth.readTokenSecretName }}
{{ include "sie.secretEnv" (dict "name" "SIE_CONFIG_SERVICE_TOKEN" "secret" .Values.config.auth.readTokenSecretName "key" .Values.config.auth.readTokenSecretKey) }}
{{- else if .Values.gateway.auth.adminTokenSecretName }}
{{ include "sie.secretEnv" (dict "name" "SIE_CONFIG_SERVICE_TOKEN" "secret" .Values.gateway.auth.adminTokenSecretName "key" .Values.gateway.auth.adminTokenSecretKey) }}
{{- end }}
{{- end -}}

{{/* The number of bytes of a quantity: 1Gi, 512M or 100. */}}
{{- define "sie.bytes" -}}
{{- $q := . | toString -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- $unit := regexFind "[A-Za-z]*$" $q -}}
{{- $number := regexFind "^[0-9]+" $q -}}
{{- if or (not $number) (and $unit (not (hasKey $units $unit))) (ne (printf "%s%s" $number $unit) $q) -}}
{{- fail (printf "%s is no number of bytes that can be read here; write 512Mi or 10Gi" $q) -}}
{{- end -}}
{{- mul (int64 $number) (int64 (ternary (index $units $unit) 1 (ne $unit ""))) -}}
{{- end -}}
