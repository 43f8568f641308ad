package models

import "github.com/nats-io/nats.go"

// Hear gives a Bootstrap a delta.
func Hear(b *Bootstrap, data []byte, trusted []string) { b.hear(&nats.Msg{Data: data}, trusted) }
