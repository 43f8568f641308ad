//go:build !linux

package payload

// putUnnamed stores nothing: only Linux has files without a name.
func (d dir) putUnnamed(string, []byte) (done bool, err error) { return false, nil }
