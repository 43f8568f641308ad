// Package arch turns a model directory into a recorded program. It reads the configuration, checks
// the checkpoint's tensors against it, packs them on a device and records the forward pass.
//
// Entry point: [Load], for a directory as sentence-transformers or transformers saves it
// (config.json, safetensors or torch files, optionally modules.json and the folders it names). The
// resulting [Model] gives a server the model's dimensions, longest input and prompts. It owns one
// [engine.Program], which an engine.Runner replays.
//
// An architecture is one file that reads top to bottom, such as bert.go: configuration, weights,
// forward pass. The table in model.go lists it under its model_type. What follows the encoder
// (pooling, dense layers, normalising) is the module chain in sentence.go, the same for all
// architectures. transformer.go and router.go read the modules before it, in each form that a
// release of sentence-transformers saves. [Options].Task says which head is read in addition:
// classify.go, masked.go (SPLADE) and tokens.go (ColBERT, BGE-M3) pack heads by the names that the
// architecture gives. [Model.Record] records the outputs of a [Want] over the one copy of the
// weights.
//
// Every file is untrusted: sizes are bounded, paths stay inside the directory, numbers are checked
// before they are multiplied. A file that breaks a rule is a [*ModelError], which trying again does
// not cure.
//
// The package starts no goroutines, does not tokenise, download or cache, and writes nothing.
package arch
