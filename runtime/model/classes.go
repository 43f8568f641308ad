package model

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	peft "github.com/sie-engine/sie/runtime/lora"
	"github.com/sie-engine/sie/weights"
	"github.com/sie-engine/sie/weights/hub"
)

// classify returns the class of a load error, in the reference server's classes, which clients see.
// A load with a permanent failure is not tried again until Registry.Unload forgets the failure.
func classify(err error) (class string, permanent bool) {
	var h *hub.Error
	var m *arch.ModelError
	var f *weights.FormatError
	var t tokenizerError
	var r *shortage
	var e *engine.Error
	var l *peft.Error
	switch {
	case errors.As(err, &h):
		return string(h.Class), h.Class.Permanent()
	case errors.As(err, &r) && r.neverFits:
		// the model fits on no device here, but may fit on another machine or with other settings
		return "PLACEMENT", false
	case errors.Is(err, engine.ErrNoMemory):
		return "OOM", false
	case errors.Is(err, context.DeadlineExceeded):
		return "TIMEOUT", false
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT),
		errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ESTALE),
		errors.Is(err, weights.ErrChanged):
		return "STORAGE", false
	case errors.Is(err, engine.ErrUnsupported):
		return "DEPENDENCY", true // this build or machine lacks what the model needs
	case errors.As(err, &m), errors.As(err, &f), errors.Is(err, weights.ErrNoWeights),
		errors.Is(err, fs.ErrNotExist), errors.Is(err, engine.ErrCorrupt), errors.As(err, &t),
		errors.As(err, &l):
		return "CONFIG", true
	case errors.As(err, &e):
		return "ENGINE", false
	}
	return "UNKNOWN", false
}
