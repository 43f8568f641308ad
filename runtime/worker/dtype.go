package worker

import (
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/runtime/engine"
)

// outputForm is one of the output types a client may ask for.
type outputForm struct {
	device  engine.DType
	element api.NumType
	bits    int // of one component
}

var outputForms = map[string]outputForm{
	"float32": {engine.F32, api.Float32, 32},
	"float16": {engine.F16, api.Float16, 16},
	"int8":    {engine.I8, api.Int8, 8},
	"uint8":   {engine.U8, api.Uint8, 8},
	"binary":  {engine.Binary, api.Uint8, 1},
	"ubinary": {engine.Binary, api.Uint8, 1},
}

// bytes is the size of a row of dims components.
func (f outputForm) bytes(dims int) int { return (dims*f.bits + 7) / 8 }
