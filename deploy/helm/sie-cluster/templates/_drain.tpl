{{/* How long each pod may take to end. The seconds between SIGTERM's request and the kill, terminationGracePeriodSeconds,
     must be more than what preStop and then the program take. */}}

{{- define "sie.gatewayGrace" -}}
{{- $d := .Values.gateway.drain -}}
{{- $needs := add (int $d.preStopSleepSeconds) (int $d.delaySeconds) (int $d.inFlightSeconds) -}}
{{- include "sie.grace" (dict "name" "gateway.terminationGracePeriodSeconds" "given" .Values.gateway.terminationGracePeriodSeconds "needs" $needs "is" (printf "drain.preStopSleepSeconds %d + delaySeconds %d + inFlightSeconds %d" (int $d.preStopSleepSeconds) (int $d.delaySeconds) (int $d.inFlightSeconds)) "more" 5) -}}
{{- end -}}

{{- define "sie.configGrace" -}}
{{- include "sie.grace" (dict "name" "config.terminationGracePeriodSeconds" "given" .Values.config.terminationGracePeriodSeconds "needs" (int .Values.config.drainSeconds) "is" (printf "drainSeconds %d" (int .Values.config.drainSeconds)) "more" 5) -}}
{{- end -}}

{{- define "sie.natsGrace" -}}
{{- include "sie.grace" (dict "name" "nats.terminationGracePeriodSeconds" "given" .Values.nats.terminationGracePeriodSeconds "needs" (int .Values.nats.lameDuckSeconds) "is" (printf "lameDuckSeconds %d" (int .Values.nats.lameDuckSeconds)) "more" 20) -}}
{{- end -}}

{{/* The server outlives its sidecar: it waits until that one has ended, two seconds more than that may take at most. */}}
{{- define "sie.workerWait" -}}
{{- add (int .Values.workers.common.drain.sidecarSeconds) 2 -}}
{{- end -}}

{{- define "sie.workerGrace" -}}
{{- $c := .Values.workers.common -}}
{{- $needs := add (int (include "sie.workerWait" .)) (int $c.drain.serverSeconds) -}}
{{- include "sie.grace" (dict "name" "workers.common.terminationGracePeriodSeconds" "given" $c.terminationGracePeriodSeconds "needs" $needs "is" (printf "drain.sidecarSeconds %d + 2 + serverSeconds %d" (int $c.drain.sidecarSeconds) (int $c.drain.serverSeconds)) "more" 5) -}}
{{- end -}}

{{/* (dict "name" N "given" G "needs" seconds "is" words "more" seconds) */}}
{{- define "sie.grace" -}}
{{- if kindIs "invalid" .given -}}
{{- add .needs .more -}}
{{- else if le (int .given) (int .needs) -}}
{{- fail (printf "%s is %d: it must be more than %d (%s), or a pod is killed while it drains" .name (int .given) (int .needs) .is) -}}
{{- else -}}
{{- int .given -}}
{{- end -}}
{{- end -}}
