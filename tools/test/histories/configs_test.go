package histories

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// ids is how many models clients change.
const ids = 4

// modelID returns the id of a model.
func modelID(i int) string { return fmt.Sprintf("test/m%d", i) }

// content is what a model says: its width and its profiles, as "64:default,p1"; "" for no model.
type content string

func newContent(dim int, profiles []string) content {
	return content(fmt.Sprintf("%d:%s", dim, strings.Join(slices.Sorted(slices.Values(profiles)), ",")))
}

func (c content) parts() (dim string, profiles []string) {
	dim, list, _ := strings.Cut(string(c), ":")
	return dim, strings.Split(list, ",")
}

// body returns the document of a model.
func (c content) body(id string) string {
	dim, names := c.parts()
	profiles := map[string]any{}
	for _, p := range names {
		profiles[p] = map[string]any{"adapter_path": "sie_server.adapters.bert_flash:BertFlashAdapter",
			"max_batch_tokens": 1024 + int(p[len(p)-1])}
	}
	text, err := json.Marshal(map[string]any{"model_id": id, "hf_id": "test/weights",
		"tasks":               json.RawMessage(`{"encode":{"dense":{"dim":` + dim + `}}}`),
		"max_sequence_length": 256, "profiles": profiles})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// configCall is a call about models.
type configCall struct {
	do      string // put, post, delete, export, epoch or list
	dry     bool
	model   int
	content content // of put and post
	gateway int     // of list
}

// configAnswer is what came of it. The zero answer is of a call without one.
type configAnswer struct {
	status  int
	epoch   uint64
	changed bool         // by what the answer says; of a dry run, what would
	docs    [ids]content // of export and list
}

// configState is all models after a change, and the changes before it.
type configState struct {
	epoch  uint64
	docs   [ids]content
	before *configState
	chain  [sha256.Size]byte // of all of it
}

// then returns the state after a change of a model.
func (s *configState) then(model int, c content) *configState {
	out := &configState{epoch: s.epoch + 1, docs: s.docs, before: s}
	out.docs[model] = c
	out.chain = sha256.Sum256(fmt.Append(s.chain[:], model, c))
	return out
}

// change returns what a call makes of a state, and the status of its answer. An unchanged state is
// the same pointer.
func (s *configState) change(c *configCall) (next *configState, status int) {
	have, want := s.docs[c.model], c.content
	switch c.do {
	case "put":
		if have == want {
			return s, 200
		}
		return s.then(c.model, want), 200
	case "delete":
		if have == "" {
			return s, 200
		}
		return s.then(c.model, ""), 200
	}
	if have == "" {
		return s.then(c.model, want), 201
	}
	dim, had := have.parts()
	other, more := want.parts()
	if dim != other {
		return s, 409
	}
	all := map[string]bool{}
	for _, p := range append(had, more...) {
		all[p] = true
	}
	if len(all) == len(had) {
		return s, 200
	}
	return s.then(c.model, content(dim+":"+strings.Join(slices.Sorted(maps.Keys(all)), ","))), 201
}

// configModel is what sie-config is behind any number of gateways: one list of models that changes
// in steps, and begins empty at an epoch. Each step has an epoch of its own: claimed has those that
// answers name, so that a change without an answer can only be one of the other epochs up to last.
func configModel(first uint64, claimed map[uint64]bool, last uint64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return &configState{epoch: first} },
		Step: func(state, input, output any) (bool, any) {
			s, c, got := state.(*configState), input.(configCall), output.(configAnswer)
			switch c.do {
			case "export":
				return got.epoch == s.epoch && got.docs == s.docs, s
			case "epoch":
				return got.epoch == s.epoch, s
			case "list": // a gateway's own view: a state that was
				then := s
				for then != nil && then.epoch > got.epoch {
					then = then.before
				}
				return then != nil && then.epoch == got.epoch && then.docs == got.docs, s
			}
			next, status := s.change(&c)
			switch {
			case got.status == 0 && (claimed[s.epoch+1] || s.epoch >= last):
				return true, s // it never happened, or happens at another place
			case got.status == 0:
				return true, next
			case c.dry && status < 300:
				return got.status == 200 && got.epoch == s.epoch && got.changed == (next != s), s
			case status == 409:
				return got.status == 409, s
			}
			return got.status == status && got.epoch == next.epoch && got.changed == (next != s), next
		},
		Equal: func(a, b any) bool { return a.(*configState).chain == b.(*configState).chain },
		Hash: func(s any) uint64 {
			chain := s.(*configState).chain
			return binary.LittleEndian.Uint64(chain[:])
		},
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v -> %+v", input, output)
		},
		DescribeState: func(state any) string {
			s := state.(*configState)
			return fmt.Sprintf("epoch %d %v", s.epoch, s.docs)
		},
	}
}

// checkConfigs returns what porcupine says of a history of calls about models that begins at an
// epoch.
func checkConfigs(h []porcupine.Operation, first uint64) (
	porcupine.CheckResult, porcupine.Model, porcupine.LinearizationInfo,
) {
	claimed, last := map[uint64]bool{}, uint64(0)
	for _, o := range h {
		c, got := o.Input.(configCall), o.Output.(configAnswer)
		last = max(last, got.epoch)
		if got.changed && !c.dry {
			claimed[got.epoch] = true
		}
	}
	m := configModel(first, claimed, last)
	result, info := porcupine.CheckOperationsVerbose(m, h, checkTime)
	return result, m, info
}

// writeConfigs changes models until the faults have ended.
func (c *client) writeConfigs() {
	for !c.over() {
		var call configCall
		call.model = c.r.IntN(ids)
		call.do = []string{"put", "put", "post", "post", "delete"}[c.r.IntN(5)]
		call.dry = c.r.IntN(6) == 0
		if call.do != "delete" {
			profiles := []string{"default"}
			for _, p := range []string{"p1", "p2"} {
				if c.r.IntN(3) == 0 {
					profiles = append(profiles, p)
				}
			}
			call.content = newContent(32<<c.r.IntN(2), profiles)
		}
		key := ""
		if c.r.IntN(3) > 0 {
			key = fmt.Sprintf("%d-%d", c.id, c.r.Uint64())
		}
		c.change(call, c.r.IntN(3), key)
		c.rest()
	}
}

// change makes a call. One with a key is sent again, through other gateways, until it is answered.
func (c *client) change(call configCall, gateway int, key string) {
	method, path, body := "PUT", "/v1/configs/models/"+modelID(call.model), ""
	switch call.do {
	case "put":
		body = call.content.body(modelID(call.model))
	case "post":
		method, path, body = "POST", "/v1/configs/models", call.content.body(modelID(call.model))
	case "delete":
		method = "DELETE"
	}
	if call.dry {
		path += "?dry_run=true"
	}
	from := c.configs.now()
	for end := time.Now().Add(patience); ; gateway = c.r.IntN(3) {
		status, answer, o := c.ask(gateway, method, path, key, body)
		if o == told {
			got, err := readChange(status, answer)
			if err != nil {
				c.t.Errorf("%+v: %v", call, err)
				return
			}
			c.configs.add(c.id, from, call, got, told)
			return
		}
		if key == "" {
			c.configs.add(c.id, from, call, configAnswer{}, o)
			return
		}
		if time.Now().After(end) {
			c.t.Errorf("%+v has no answer after %v", call, patience)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// readChange reads the answer of a call that changes models.
func readChange(status int, answer []byte) (got configAnswer, err error) {
	var a struct {
		Epoch     uint64
		Dry       bool `json:"dry_run"`
		Changed   bool
		Replaced  bool
		Deleted   bool
		Unchanged *bool
		Created   []string `json:"created_profiles"`
		Warnings  []string
	}
	if status != 200 && status != 201 && status != 409 {
		return got, fmt.Errorf("status %d: %.300s", status, answer)
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return got, err
	}
	got = configAnswer{status: status, epoch: a.Epoch, changed: a.Changed}
	if !a.Dry {
		got.changed = a.Replaced || a.Deleted || len(a.Created) > 0
		if a.Unchanged != nil && *a.Unchanged == got.changed {
			return got, fmt.Errorf("changed and unchanged: %.300s", answer)
		}
	}
	return got, nil
}

// readConfigs reads the export and the epoch, as sie-config has them, until the faults have ended.
func (c *client) readConfigs() {
	for !c.over() {
		c.export(c.r.IntN(3))
		from := c.configs.now()
		if status, answer, o := c.ask(c.r.IntN(3), "GET", "/v1/configs/epoch", "", ""); o == told {
			var a struct{ Epoch uint64 }
			if err := json.Unmarshal(answer, &a); err != nil || status != 200 {
				c.t.Errorf("epoch: %d %.300s", status, answer)
			}
			c.configs.add(c.id, from, configCall{do: "epoch"}, configAnswer{epoch: a.Epoch}, told)
		}
		c.rest()
	}
}

// export reads what sie-config has through a gateway. It reports whether there was an answer.
func (c *client) export(gateway int) (uint64, bool) {
	from := c.configs.now()
	status, answer, o := c.ask(gateway, "GET", "/v1/configs/export", "", "")
	if o != told {
		return 0, false
	}
	var a struct {
		Epoch  uint64
		Models []struct {
			ID     string `json:"model_id"`
			Config struct {
				Tasks struct {
					Encode struct{ Dense struct{ Dim int } }
				}
				Profiles map[string]any
			} `json:"model_config"`
		}
	}
	if err := json.Unmarshal(answer, &a); err != nil || status != 200 {
		c.t.Errorf("export: %d %.300s", status, answer)
		return 0, false
	}
	got := configAnswer{epoch: a.Epoch}
	for _, m := range a.Models {
		if i := indexOf(m.ID); i >= 0 {
			profiles := slices.Collect(maps.Keys(m.Config.Profiles))
			got.docs[i] = newContent(m.Config.Tasks.Encode.Dense.Dim, profiles)
		}
	}
	c.configs.add(c.id, from, configCall{do: "export"}, got, told)
	return a.Epoch, true
}

// indexOf returns the number of a model that clients change, -1 for others.
func indexOf(id string) int {
	for i := range ids {
		if id == modelID(i) {
			return i
		}
	}
	return -1
}

// watchGateway reads what a gateway itself shows, until the faults have ended: its epoch never goes
// back, also when it is started again, and its models are those of the epoch.
func (c *client) watchGateway(gateway int) {
	last := uint64(0)
	for !c.over() {
		last = max(last, c.list(gateway, last))
		c.rest()
	}
}

// list reads the models that a gateway shows, between two looks at its epoch, and returns the
// epoch, 0 without an answer.
func (c *client) list(gateway int, last uint64) uint64 {
	from := c.configs.now()
	before, ok := c.shownEpoch(gateway, last)
	if !ok {
		return 0
	}
	status, answer, o := c.ask(gateway, "GET", "/v1/models", "", "")
	after, ok := c.shownEpoch(gateway, before)
	if o != told || !ok || before != after {
		return before
	}
	var a struct {
		Models []struct {
			Name string
			Dims struct{ Dense int }
		}
	}
	if err := json.Unmarshal(answer, &a); err != nil || status != 200 || len(a.Models) == 0 {
		c.t.Errorf("models of gateway %d: %d %.300s", gateway, status, answer)
		return before
	}
	got := configAnswer{epoch: before}
	names, dims := [ids][]string{}, [ids]int{}
	for _, m := range a.Models {
		base, profile, named := strings.Cut(m.Name, ":")
		i := indexOf(base)
		switch {
		case i < 0:
		case named:
			names[i] = append(names[i], profile)
		default:
			names[i], dims[i] = append(names[i], "default"), m.Dims.Dense
		}
	}
	for i := range ids {
		if len(names[i]) > 0 {
			got.docs[i] = newContent(dims[i], names[i])
		}
	}
	c.configs.add(c.id, from, configCall{do: "list", gateway: gateway}, got, told)
	return after
}

// shownEpoch returns the epoch that a gateway shows.
func (c *client) shownEpoch(gateway int, last uint64) (uint64, bool) {
	status, answer, o := c.ask(gateway, "GET", "/v1/configs/models/"+builtin+"/status", "", "")
	if o != told {
		return 0, false
	}
	var a struct {
		Epoch uint64 `json:"config_epoch"`
	}
	if err := json.Unmarshal(answer, &a); err != nil || status != 200 {
		c.t.Errorf("gateway %d, of a model that is always there: %d %.300s", gateway, status, answer)
		return 0, false
	}
	if a.Epoch < last {
		c.t.Errorf("gateway %d shows epoch %d after %d", gateway, a.Epoch, last)
	}
	return a.Epoch, true
}
