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
// release of sentence-transformers saves.
//
// A head is one file, too: embed.go, masked.go (SPLADE), colbert.go, m3.go (BGE-M3), classify.go,
// tag.go. Each is a [Task] of the table in head.go. It says by which files a model is known for it,
// packs its layers by the names that the architecture gives, names the linears that adapters
// change, and records its outputs. [Options].Task chooses it. [Model.Record] records the outputs of
// a [Want] over the one copy of the weights; what a program gives is in engine.Program.Outputs.
//
// Every file is untrusted: sizes are bounded, paths stay inside the directory, numbers are checked
// before they are multiplied. A file that breaks a rule is a [*ModelError], which trying again does
// not cure.
//
// The package starts no goroutines, does not tokenise, download or cache, and writes nothing.
package arch
