package catalog

import "strings"

// later names the kind of models that the reference serves and this build does not yet, by id. They
// are extractors, which users would expect beside those of the catalog. To serve one, write its
// model file and remove its line.
var later = map[string]string{
	"convaiinnovations/laya":                   "Laya",
	"convaiinnovations/laya-multilingual":      "Laya",
	"convaiinnovations/laya-typed-decisions":   "Laya",
	"facebook/bart-large-mnli":                 "BART",
	"fastino/GLiNER2.5-Decide":                 "GLiNER2",
	"fastino/GLiNER2.5-Decide-1B":              "GLiNER2",
	"fastino/GLiNER2.5-multi-Decide":           "GLiNER2",
	"fastino/gliguard-LLMGuardrails-300M":      "GLiNER2",
	"fastino/gliner2-base-v1":                  "GLiNER2",
	"fastino/gliner2-large-v1":                 "GLiNER2",
	"fastino/gliner2-privacy-filter-PII-multi": "GLiNER2",
	"fastino/gliner2.5-base-v1":                "GLiNER2",
	"fastino/gliner2.5-small-v1":               "GLiNER2",
	"jackboyla/glirel-large-v0":                "GLiREL",
	"knowledgator/gliformer-base-v1":           "GLiFormer",
	"knowledgator/gliformer-large-v1":          "GLiFormer",
	"openai/privacy-filter":                    "OpenAI's privacy filter",
}

// Later returns why a model that the reference serves, of this id or as one of its variants, is not
// served yet, without a full stop; "" for any other id.
func Later(id string) string {
	base, _, _ := strings.Cut(id, ":")
	kind := later[DecodeID(base)]
	if kind == "" {
		return ""
	}
	return "it is of the kind " + kind + ", which this build does not serve yet"
}
