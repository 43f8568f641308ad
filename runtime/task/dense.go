package task

import "github.com/sie-engine/sie/runtime/arch"

// dense is models that give one pooled vector a text.
var dense = family{task: arch.Embed, encode: &vectors{}}
