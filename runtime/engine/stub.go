//go:build !native

package engine

import "unsafe"

// Built reports whether the native engine is in this binary.
const Built = false

// LibSum identifies the C library this binary was built against: none.
func LibSum() string { return "" }

// Without a device no other handle can exist, so only cDeviceOpen and cMuveraOrder are ever called.
const unreachable = "engine: internal error: a handle exists in a binary without the native engine"

func cDeviceOpen(Options, *sieGPU) (unsafe.Pointer, error) { return nil, ErrNotBuilt }

func cDeviceClose(unsafe.Pointer)                                             { panic(unreachable) }
func cDeviceInfo(unsafe.Pointer) (Info, error)                                { panic(unreachable) }
func cWeightCreate(unsafe.Pointer, WeightSpec, int64) (unsafe.Pointer, error) { panic(unreachable) }
func cWeightStaged(unsafe.Pointer) uintptr                                    { panic(unreachable) }
func cWeightPlace(unsafe.Pointer, devicePtr) error                            { panic(unreachable) }
func cProgramInputBytes(unsafe.Pointer) int64                                 { panic(unreachable) }
func cArenaPlace(unsafe.Pointer, *gpuArena) error                             { panic(unreachable) }
func cSlotInput(unsafe.Pointer) (uintptr, int64, error)                       { panic(unreachable) }
func cWeightFree(unsafe.Pointer)                                              { panic(unreachable) }
func cWeightBytes(unsafe.Pointer) int64                                       { panic(unreachable) }
func cWeightDenormals(unsafe.Pointer) int64                                   { panic(unreachable) }
func cProgramFree(unsafe.Pointer)                                             { panic(unreachable) }
func cProgramDescribe(unsafe.Pointer) string                                  { panic(unreachable) }
func cArenaCreate(unsafe.Pointer, Workspace) (unsafe.Pointer, error)          { panic(unreachable) }
func cArenaFree(unsafe.Pointer)                                               { panic(unreachable) }
func cArenaBytes(unsafe.Pointer) int64                                        { panic(unreachable) }
func cSlotCreate(unsafe.Pointer, SlotCaps, int) (unsafe.Pointer, error)       { panic(unreachable) }
func cSlotFree(unsafe.Pointer)                                                { panic(unreachable) }
func cProgramSubmit(_, _, _, _ unsafe.Pointer) error                          { panic(unreachable) }
func cProgramStateBytes(unsafe.Pointer) int64                                 { panic(unreachable) }
func cStateCreate(unsafe.Pointer, int64) (unsafe.Pointer, error)              { panic(unreachable) }
func cStatePlace(unsafe.Pointer, devicePtr) error                             { panic(unreachable) }
func cStateFree(unsafe.Pointer)                                               { panic(unreachable) }
func cSlotWait(unsafe.Pointer) error                                          { panic(unreachable) }
func cSlotOutput(unsafe.Pointer, int) unsafe.Pointer                          { panic(unreachable) }
func cSlotLoad(_, _ unsafe.Pointer, _ *Batch, _ *Slot) error                  { panic(unreachable) }
func cSlotNonFinite(unsafe.Pointer) (unsafe.Pointer, int64)                   { panic(unreachable) }
func cMuveraOrder([]int32, int, int, int, []int32, []int32) error             { return ErrNotBuilt }
func cProgram(unsafe.Pointer, []entry, []unsafe.Pointer) (unsafe.Pointer, Workspace, error) {
	panic(unreachable)
}
func cProgramOutputs(unsafe.Pointer, int) ([]Output, error) { panic(unreachable) }
func cProgramColumns(unsafe.Pointer, int32) (int64, error)  { panic(unreachable) }
