{{/* sie.natsConf is the configuration of the NATS servers, /etc/sie/nats/nats.conf, for a container of the gateway's image:
       command: ["sie-gateway", "nats", "--config", "/etc/sie/nats/nats.conf", "--passwords", "/etc/sie/nats-passwords",
                 "--lame-duck", "{lameDuckSeconds}s"]
     It reads the file again when it, a password or a certificate changes.
     (dict "root" $ "name" N "host" H): N is the name of the StatefulSet; server i is N-i.H for the others, H its
     headless Service. Ports: 4222 clients, 6222 the other servers, nats.metricsPort probes (/healthz) and monitoring.
     The pod has the variable POD_NAME, a volume at /data, with auth the Secret's files gateway, worker, config,
     route and exporter below /etc/sie/nats-passwords, with TLS tls.crt, tls.key and ca.crt below /etc/sie/nats-tls. */}}
{{- define "sie.natsConf" -}}
{{- $n := .root.Values.nats -}}
server_name: $POD_NAME
listen: "0.0.0.0:4222"
http: "0.0.0.0:{{ int $n.metricsPort }}"
max_payload: {{ int $n.maxPayload }}
write_deadline: "10s"

jetstream {
  store_dir: "/data"
  max_memory_store: {{ $n.jetstream.memoryStore.maxSize }}
  max_file_store: {{ ternary $n.jetstream.fileStore.maxSize "0" $n.jetstream.fileStore.enabled }}
}
{{- if $n.tls.enabled }}

tls {
  cert_file: "/etc/sie/nats-tls/tls.crt"
  key_file: "/etc/sie/nats-tls/tls.key"
  ca_file: "/etc/sie/nats-tls/ca.crt"
  timeout: 5
}
{{- end }}
{{- if gt (int $n.replicas) 1 }}

cluster {
  name: {{ .name | quote }}
  listen: "0.0.0.0:6222"
  {{- if $n.auth.enabled }}
  authorization {
    user: "sie-route"
    password: $sie_route_password
    timeout: 5
  }
  {{- end }}
  {{- if $n.tls.enabled }}
  tls {
    cert_file: "/etc/sie/nats-tls/tls.crt"
    key_file: "/etc/sie/nats-tls/tls.key"
    ca_file: "/etc/sie/nats-tls/ca.crt"
    timeout: 5
  }
  {{- end }}
  routes: [
    {{- range $i := until (int $n.replicas) }}
    "nats://{{ $.name }}-{{ $i }}.{{ $.host }}:6222"
    {{- end }}
  ]
}
{{- end }}
{{- if $n.auth.enabled }}

# What each user may do; gateway/broker/permissions.go says why.
{{ .root.Files.Get "files/nats-permissions.conf" }}
accounts {
  SIE {
    jetstream: enabled
    users: [
      { user: "sie-gateway", password: $sie_gateway_password, permissions: $sie_gateway_may }
      { user: "sie-worker", password: $sie_worker_password, permissions: $sie_worker_may }
      { user: "sie-config", password: $sie_config_password, permissions: $sie_config_may }
    ]
  }
  SYS {
    users: [
      { user: "sie-exporter", password: $sie_exporter_password, permissions: $sie_exporter_may }
    ]
  }
}
system_account: SYS
{{- end }}
{{- end }}
