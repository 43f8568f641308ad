package task_test

import (
	"testing"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/task"
)

// Exactly the families that the catalog says are served are served here.
func TestFamiliesOfTheCatalogAreServed(t *testing.T) {
	tasks := task.Tasks()
	for _, f := range catalog.Families() {
		served, _ := f.Served()
		if what, here := tasks[f]; served != here || here && what == (arch.Task{}) {
			t.Errorf("the catalog says that %q is served: %v; its task here is %v", f, served, what)
		}
	}
}
