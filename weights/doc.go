// Package weights reads model checkpoints in the safetensors format and in that of torch.save, from
// one file or from the shards named by a model.safetensors.index.json or
// pytorch_model.bin.index.json.
//
// Entry points: [Open] for a model directory, [OpenFile] for one file such as a module's
// 2_Dense/model.safetensors. Both return a [Checkpoint], whose [Tensor] values know where their
// elements lie: opening reads the headers only, and [Tensor.ReadAt] or a [Buffer] reads elements
// when they are wanted, into memory of the caller.
//
// Checkpoint files are untrusted. Every length, offset, name and number in a header or an index is
// checked before it is used, so a hostile or damaged file gives a [*FormatError] that names the
// file, the tensor and the rule, never a panic, an unbounded allocation or an out-of-range view.
// The rules are those of the format: a JSON header of at most 100 MB, no duplicate names, and
// tensors that cover the data section exactly, without overlap or hole.
//
// A file that another process writes to, cuts short or appends to while it is open gives an error
// that matches [ErrChanged] and names the file: at once where bytes are missing, and at
// [Checkpoint.CheckUnchanged], after the last read, in every other case. Nothing is mapped, so that
// no such change raises a signal. The files stay open, so a file that is replaced or deleted
// (rather than written in place) is harmless, as cache and package managers do it.
//
// A torch file is a program in the pickle language inside an archive. The program is read by a
// machine that can build plain values and tensors and nothing else (pickle.go): what it names
// besides is refused by name, never looked up. Its size, steps, depth and memory are bounded, and
// each tensor's offset and strides are checked against the bytes that are there. Tensors that lie
// row-major are read from the file, as in safetensors; others are copied, within a few times the
// file's own size. Files of PyTorch before 1.6 and TorchScript programs are refused.
//
// The package starts no goroutines, writes nothing and runs no code from a checkpoint. It does not
// download (see weights/hub) and does not know any model architecture.
package weights
