package arch

import "github.com/sie-engine/sie/runtime/engine"

// Want says which outputs a program over a model's weights gives. Outputs are declared in the order of its fields, the first
// one is output 0. It is comparable: programs are kept by it.
//
// R below is the batch's token rows, K those of them that it keeps (engine.Recorder.KeepRows).
type Want struct {
	Dense   bool           // rows [B, Dim]: pooled, through the module chain
	Pooling engine.Pooling // of Dense; 0 = the model's own

	Sparse       bool // sparse rows [B, Vocab]: the SPLADE maximum
	TokenWeights bool // values [R, 1]: BGE-M3's lexical weight of each token, relu applied
	Multi        bool // token rows [K, TokenDim]: ColBERT's projection, not yet normalised
	MaxSim       bool // values [B, 1]: each sequence against its query; rows normalised
	Logits       bool // values [B, labels]: sequence classification, before any activation
	TokenLogits  bool // values [R, labels]: token classification

	// AttendKept lets tokens attend only to the tokens that the batch keeps, while Multi and MaxSim read all rows: queries of
	// ColBERT that are filled up with [MASK].
	AttendKept bool
}
