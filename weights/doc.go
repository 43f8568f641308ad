// Package weights reads model checkpoints in the safetensors format and in the format of
// torch.save. A checkpoint is one file, or the shards that model.safetensors.index.json or
// pytorch_model.bin.index.json names.
//
// Entry points: [Open] for a model directory, [OpenFile] for one file such as a module's
// 2_Dense/model.safetensors. Both return a [Checkpoint]. Opening reads only the headers of
// safetensors files. [Tensor.ReadAt] and [Buffer] read elements later, into the caller's memory.
//
// Checkpoint files are untrusted. Every length, offset, name and number in a header or an index is
// checked before it is used. A hostile or damaged file gives a [*FormatError] that names the file,
// the tensor and the rule. It never causes a panic, an unbounded allocation or an out-of-range
// view. The rules are those of the format: a JSON header of at most 100 MB, no duplicate names, and
// tensors that cover the data section exactly, without overlap or hole.
//
// Another process may write to a file, truncate it or append to it while it is open. The error then
// matches [ErrChanged] and names the file. A read reports missing bytes at once;
// [Checkpoint.CheckUnchanged], called after the last read, reports every other change. Nothing is
// mapped, so no change raises a signal. The files stay open, so a file may be replaced or deleted
// safely, as cache and package managers do.
//
// A torch file is a program in the pickle language inside an archive. Package weights runs it on a
// machine that can build plain values and tensors and nothing else (pickle.go). The machine refuses
// every other name and never looks one up. The size, steps, depth and memory of the program are
// bounded. Each tensor's offset and strides are checked against the bytes of the file. Row-major
// tensors are read from the file, as in safetensors. Other tensors are copied at opening; the
// copies are bounded by four times the size of the file. Files of PyTorch before 1.6 and
// TorchScript programs are refused.
//
// The package starts no goroutines, writes nothing and runs no code from a checkpoint. It does not
// download (see weights/hub) and does not know any model architecture.
package weights
