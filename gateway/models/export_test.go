package models

// Hear gives a Bootstrap a delta.
func Hear(b *Bootstrap, data []byte, trusted []string) { b.hear(data, trusted) }
