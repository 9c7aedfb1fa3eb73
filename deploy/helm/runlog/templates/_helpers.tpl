{{- define "runlog.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "runlog.headless" -}}
{{ include "runlog.fullname" . }}-headless
{{- end -}}

{{- define "runlog.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "runlog.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "runlog.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "runlog.labels" -}}
{{ include "runlog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "runlog.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "runlog.scheme" -}}
{{ ternary "https" "http" (ne .Values.tls.secretName "") }}
{{- end -}}

{{/* Refuses values that would start no server, or a dangerous one. */}}
{{- define "runlog.validate" -}}
{{- if not .Values.kafka.brokers -}}
{{- fail "kafka.brokers is required: HOST:PORT, several separated by commas" -}}
{{- end -}}
{{- if and (not .Values.tls.secretName) (not .Values.insecure.noTls) -}}
{{- fail "tls.secretName is required; insecure.noTls accepts unencrypted connections" -}}
{{- end -}}
{{- if and (not .Values.tokens.secretName) (not .Values.insecure.noAuth) -}}
{{- fail "tokens.secretName is required; insecure.noAuth lets every client do everything" -}}
{{- end -}}
{{- if and .Values.tls.clientCaSecretName (not .Values.tls.secretName) -}}
{{- fail "tls.clientCaSecretName needs tls.secretName" -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- if regexMatch "^--(new-journal|take-home)(=|$)" . -}}
{{- fail (printf "extraArgs has %s, which each restart would repeat: give it once, by hand (docs/operate.md#kubernetes)" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The host names of the server: those of the client Service, and of the pod behind the headless Service. */}}
{{- define "runlog.hosts" -}}
{{- $names := list (include "runlog.fullname" .) (printf "$(POD_NAME).%s" (include "runlog.headless" .)) -}}
{{- $namespace := .Release.Namespace -}}
{{- $domain := .Values.clusterDomain -}}
{{- range $names }}
- {{ . | quote }}
- {{ printf "%s.%s" . $namespace | quote }}
- {{ printf "%s.%s.svc" . $namespace | quote }}
- {{ printf "%s.%s.svc.%s" . $namespace $domain | quote }}
{{- end }}
{{- range .Values.allowHosts }}
- {{ . | quote }}
{{- end }}
{{- end -}}
