package tenant

import (
	"os"
	"testing"
)

// While the file is read, which may take long, what other servers tell waits for nothing.
func TestNobodyWaitsForTheFile(t *testing.T) {
	a := open(t, file)
	write(t, a.file+".next", file)
	if err := os.Rename(a.file+".next", a.file); err != nil {
		t.Fatal(err)
	}
	read, begun, end, done := a.read, make(chan bool), make(chan bool), make(chan bool)
	a.read = func() ([]byte, error) {
		begun <- true
		<-end
		return read()
	}
	go func() {
		defer close(done)
		a.refresh()
	}()
	<-begun
	if free := a.mu.TryLock(); free {
		a.mu.Unlock()
		a.SetPeers(1)
		a.Told([]Use{{Name: "search"}})
		a.Heard("other", []Use{{Name: "search", Items: 1, Level: 9}})
	} else {
		t.Error("what is heard waits for the file")
	}
	close(end)
	<-done
	if a.loads != [2]uint64{0, 1} || a.usages["search"].level != 9 {
		t.Errorf("loads %v, level %v", a.loads, a.usages["search"].level)
	}
}
