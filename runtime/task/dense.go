package task

import "github.com/sie-engine/sie/runtime/arch"

// dense is the family of models that give one pooled vector per text.
var dense = family{task: arch.Embed, encode: &vectors{}}
