{{/* Pieces of network policies and of scaled objects. */}}

{{/* sie.peer: the pods of a component. (dict "root" $ "component" C) */}}
{{- define "sie.peer" -}}
- podSelector:
    matchLabels:
      app.kubernetes.io/name: sie
      app.kubernetes.io/instance: {{ .root.Release.Name }}
      app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* sie.metricsFrom: the peers given, or every namespace. */}}
{{- define "sie.metricsFrom" -}}
{{- if . }}
{{- toYaml . }}
{{- else -}}
- namespaceSelector: {}
{{- end }}
{{- end -}}

{{/* sie.triggers: (dict "root" $ "triggers" T "auth" name of a TriggerAuthentication) */}}
{{- define "sie.triggers" -}}
{{- range .triggers }}
{{- $t := deepCopy . }}
{{- if eq $t.type "prometheus" }}
{{- $_ := set $t "metadata" (merge (dict "serverAddress" $.root.Values.autoscaling.prometheusAddress) $t.metadata) }}
{{- if $.root.Values.autoscaling.authentication.enabled }}
{{- $_ := set $t.metadata "authModes" "bearer" }}
{{- $_ := set $t "authenticationRef" (dict "name" $.auth) }}
{{- end }}
{{- end }}
{{ list $t | toYaml }}
{{- end }}
{{- end -}}
