// Package weights reads model checkpoints in the safetensors format, from one file or from the shards named by a
// model.safetensors.index.json.
//
// Entry points: [Open] for a model directory, [OpenFile] for one file such as a module's 2_Dense/model.safetensors.
// Both return a [Checkpoint], whose [Tensor] values are views into read-only memory maps: opening reads the headers
// only, and a tensor's pages come from disk when they are first touched.
//
// Checkpoint files are untrusted. Every length, offset, name and number in a header or an index is checked before it
// is used, so a hostile or damaged file gives a [*FormatError] that names the file, the tensor and the rule, never a
// panic, an unbounded allocation or an out-of-range view. The rules are those of the format: a JSON header of at most
// 100 MB, no duplicate names, and tensors that cover the data section exactly, without overlap or hole.
//
// What the package cannot check is a file that another process truncates after it was mapped: touching the lost pages
// then raises SIGBUS, which ends the process when C code touches them. The files stay open while mapped, so a file
// that is replaced or deleted (rather than truncated in place) is harmless, as cache and package managers do it;
// [Checkpoint.CheckUnchanged] finds a changed file cheaply before a long read.
//
// The package starts no goroutines, writes nothing and runs no code from a checkpoint. It does not read torch pickles
// (pytorch_model.bin), does not download (see weights/hub) and does not know any model architecture.
package weights
