package task

import (
	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
)

// The family of models that give one pooled vector per text.
func init() { families[catalog.FamilyDense] = &family{task: arch.Embed, encode: &vectors{}} }
