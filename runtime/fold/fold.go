package fold

// Muvera.
type Muvera struct {
	Repetitions, Bits, Projected, Final int
	Seed                                int64
	Normalize, CenterTokens, FillEmpty  bool
}

// SMVE.
type SMVE struct {
	Repetitions, Width, Top, MaxNonzeros int
	Seed                                 int64
}
