package pages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// Document returns the OpenAPI document of sie-server. It is shared: do not change it.
func Document() []byte { return document() }

// GatewayDocument returns the OpenAPI document of a gateway: that of sie-server with the routes
// that only a gateway has. It is shared: do not change it.
func GatewayDocument() []byte { return gatewayDocument() }

var (
	document        = sync.OnceValue(func() []byte { return read("openapi.json") })
	gatewayDocument = sync.OnceValue(func() []byte {
		b, err := with(document(), read("gateway.json"))
		if err != nil {
			panic("pages: gateway.json: " + err.Error())
		}
		return b
	})
)

// with returns an OpenAPI document with the parts of another one: its paths and tags behind those
// of the first, its info over the first's. The order of paths and tags stays, because the page
// shows them in it.
func with(base, more []byte) ([]byte, error) {
	var whole, parts map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(base, &whole), json.Unmarshal(more, &parts)); err != nil {
		return nil, err
	}
	for name, part := range parts {
		a, b := bytes.TrimSpace(whole[name]), bytes.TrimSpace(part)
		if len(a) < 3 || len(b) < 3 || a[0] != b[0] || a[0] != '{' && a[0] != '[' {
			return nil, fmt.Errorf("%s of the two documents cannot be joined", name)
		}
		if name == "info" { // of two values of a field the later one counts
			var info map[string]any
			if err := errors.Join(json.Unmarshal(a, &info), json.Unmarshal(b, &info)); err != nil {
				return nil, err
			}
			joined, err := json.Marshal(info)
			if err != nil {
				return nil, err
			}
			whole[name] = joined
			continue
		}
		whole[name] = bytes.Join([][]byte{a[:len(a)-1], b[1:]}, []byte(","))
	}
	return json.MarshalIndent(whole, "", " ")
}
