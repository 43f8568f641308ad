// Package arch turns a model directory into a recorded program: it reads the configuration, checks
// the checkpoint's tensors against it, packs them on a device and records the forward pass.
//
// Entry point: [Load], for a directory as sentence-transformers or transformers saves it
// (config.json, safetensors or torch files, optionally modules.json and the folders it names). The
// resulting [Model] says what a server needs to know about it (dimensions, longest input, prompts)
// and owns one [engine.Program], which an engine.Runner replays.
//
// An architecture is one file that reads top to bottom, such as bert.go: configuration, weights,
// forward pass. It is entered in the table in model.go under its model_type. What follows the
// encoder (pooling, dense layers, normalising) is the module chain in sentence.go, the same for all
// architectures; transformer.go and router.go read what the modules before it say, in each of the
// forms that releases of sentence-transformers save. [Options].Task says which head is read
// besides: classify.go, masked.go (SPLADE) and tokens.go (ColBERT, BGE-M3) pack them by the names
// that the architecture gives, and [Model.Record] records what a [Want] asks for over the one copy
// of the weights.
//
// Every file is untrusted: sizes are bounded, paths stay inside the directory, numbers are checked
// before they are multiplied. What a file may not say is a [*ModelError], which trying again does
// not cure.
//
// The package starts no goroutines, does not tokenise, download or cache, and writes nothing.
package arch
