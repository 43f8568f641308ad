{{/* The lanes of the workers, one for each bundle of each enabled pool, in the order of the pools' names, as a JSON list
     of {pool, profile, bundle, key, weight, min, max, values, bundleValues}. */}}
{{- define "sie.lanes" -}}
{{- $root := . -}}
{{- $lanes := list -}}
{{- range $key, $pool := .Values.workers.pools -}}
{{- if $pool.enabled -}}
{{- $profile := default $key $pool.machineProfile -}}
{{- if not (hasKey $root.Values.machineProfiles $profile) -}}
{{- fail (printf "workers.pools.%s.machineProfile is %s, which machineProfiles does not have: it has %s" $key $profile (keys $root.Values.machineProfiles | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $bundles := default (dict "default" dict) $pool.bundles -}}
{{- $some := false -}}
{{- range $name, $bundle := $bundles -}}
{{- $bundle = default dict $bundle -}}
{{- if ne (toString (get $bundle "enabled")) "false" -}}
{{- $some = true -}}
{{- $min := int $pool.minReplicas -}}
{{- $max := int $pool.maxReplicas -}}
{{- if hasKey $bundle "minReplicas" }}{{ $min = int $bundle.minReplicas }}{{ end -}}
{{- if hasKey $bundle "maxReplicas" }}{{ $max = int $bundle.maxReplicas }}{{ end -}}
{{- if gt $min $max -}}
{{- fail (printf "workers.pools.%s, bundle %s: minReplicas is %d and maxReplicas %d" $key $name $min $max) -}}
{{- end -}}
{{- $queue := default $root.Values.workers.common.queuePool $pool.queuePool -}}
{{- $lanes = append $lanes (dict "key" $key "pool" $queue "profile" $profile "bundle" $name "weight" (int (default 0 $pool.weight)) "min" $min "max" $max "values" $pool "bundleValues" $bundle) -}}
{{- end -}}
{{- end -}}
{{- if not $some -}}
{{- fail (printf "workers.pools.%s is enabled and none of its bundles is" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $lanes | toJson -}}
{{- end -}}

{{/* What gateways are told of the lanes. Lanes of one profile and bundle share its requests by their weights. */}}
{{- define "sie.physicalLanes" -}}
{{- $out := list -}}
{{- range include "sie.lanes" . | fromJsonArray -}}
{{- $lane := dict "pool" .pool "machineProfile" .profile "bundle" .bundle -}}
{{- if .weight }}{{ $_ := set $lane "weight" (int .weight) }}{{ end -}}
{{- $out = append $out $lane -}}
{{- end -}}
{{- $out | toJson -}}
{{- end -}}

{{/* The name of a lane's StatefulSet. (dict "root" $ "lane" L) */}}
{{- define "sie.workerName" -}}
{{ printf "%s-worker-%s-%s" (include "sie.fullname" .root) (.lane.key | lower | replace "_" "-" | replace "." "-") (.lane.bundle | lower | replace "_" "-" | replace "." "-") | trunc 52 | trimSuffix "-" }}
{{- end -}}
