package configd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/docform"
)

// object is a JSON object of an answer.
type object = map[string]any

// maxID bounds the id of a model, in bytes, as the catalog does.
const maxID = 256

var idForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._/@-]*$`)

// checkID returns why an id cannot be one of an added model, or nil.
func checkID(id string) *refusal {
	why := ""
	switch {
	case id == "status" || strings.HasSuffix(id, "/status"):
		why = "Model ID must not end with '/status' (reserved for the gateway status endpoint)."
	case !idForm.MatchString(id) || strings.Contains(id, ".."):
		why = "Model ID contains invalid characters."
	case strings.Contains(id, "__"):
		why = "Model ID must not contain '__', which stands for '/' in file names and on OpenAI routes."
	case len(id) > maxID:
		why = fmt.Sprintf("Model ID has %d bytes; the limit is %d.", len(id), maxID)
	default:
		return nil
	}
	return &refusal{400, object{"error": "invalid_model_id", "message": why}}
}

// submitted is the document of a request that writes.
type submitted struct {
	id      string
	content map[string]any // with sie_id
	text    string         // says the same
}

// profiles returns the names and contents of the document's profiles.
func (d *submitted) profiles() map[string]any {
	p, _ := d.content["profiles"].(map[string]any)
	return p
}

// submit reads a body: YAML, or JSON. path is the id that a path names, "" for none; the body may
// then leave it out.
func submit(body []byte, path string) (*submitted, *refusal) {
	t := bytes.TrimSpace(body)
	isJSON := len(t) > 0 && t[0] == '{' && json.Valid(t)
	src := body
	if isJSON {
		src = docform.OfJSON(t, "")
	}
	content, err := catalog.Document{Name: "body", Source: src}.Content()
	if err != nil {
		return nil, parseError(err)
	}
	if isJSON { // for people; its nesting is bounded now, or this could take any memory
		src = docform.OfJSON(t, " ")
	}
	asWritten := content["sie_id"] != nil && content["model_id"] == nil
	id, no := submittedID(content, path)
	if no != nil {
		return nil, no
	}
	if no := checkID(id); no != nil {
		return nil, no
	}
	d := &submitted{id: id, content: content, text: string(src)}
	if pool, ok := content["pool"].(string); ok && pool != strings.ToLower(pool) {
		content["pool"], asWritten = strings.ToLower(pool), false
	}
	if !asWritten {
		d.text = string(catalog.Text(content))
	}
	return d, nil
}

// parseError refuses a body that is no document.
func parseError(err error) *refusal {
	why := problemText(err)
	if strings.Contains(why, "expected a map") || strings.Contains(why, "the file is empty") ||
		strings.Contains(why, "holds no YAML document") {
		why = "Expected YAML mapping at top level"
	} else {
		why = "Invalid YAML: " + why
	}
	return &refusal{400, object{"error": "parse_error", "message": why}}
}

// problemText returns the problems of a document without the name of a file.
func problemText(err error) string {
	var all *catalog.Problems
	if !errors.As(err, &all) {
		return err.Error()
	}
	lines := make([]string, len(all.List))
	for i, p := range all.List {
		lines[i] = fmt.Sprintf("line %d: ", p.Line)
		if p.Key != "" {
			lines[i] += p.Key + ": "
		}
		lines[i] += p.Msg
	}
	return strings.Join(lines, "; ")
}

// submittedID returns the id that a document and a path agree on, and makes it the document's
// sie_id. model_id is another name of that key.
func submittedID(content map[string]any, path string) (string, *refusal) {
	id := path
	for _, key := range []string{"sie_id", "model_id"} {
		v, ok := content[key]
		if !ok {
			continue
		}
		named, isText := v.(string)
		switch {
		case !isText:
			return "", invalid(fmt.Sprintf("%s is not a string; put quotes around it", key))
		case key == "model_id" && content["sie_id"] != nil && content["sie_id"] != v:
			return "", &refusal{400, object{"error": "model_id_mismatch",
				"message": fmt.Sprintf("Body sie_id '%v' and model_id '%s' differ; they are one key.",
					content["sie_id"], named)}}
		case path != "" && named != path:
			return "", &refusal{400, object{"error": "model_id_mismatch",
				"message": fmt.Sprintf("Body sie_id '%s' does not match path model id '%s'.", named, path)}}
		}
		id = named
	}
	if id == "" {
		return "", invalid("Missing required field: sie_id")
	}
	delete(content, "model_id")
	content["sie_id"] = id
	return id, nil
}

// invalid refuses a document that is none of a model.
func invalid(messages ...string) *refusal {
	details := make([]object, len(messages))
	for i, m := range messages {
		details[i] = object{"message": m}
	}
	return &refusal{422, object{"error": "validation_error", "details": details}}
}
