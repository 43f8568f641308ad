package batch

// Inputs holds what items bring for each of their tokens, by the names that programs give their
// inputs. An Item has those of its sequence, a Packed batch those of all its sequences end to end.
// A nil input is left out: the program then takes the value that stands beside it here.
type Inputs struct {
	IDs     []int32 // token ids, special tokens included; never left out
	TypeIDs []int32 // 0
	Keep    []uint8 // 1: the batch keeps the token's row; 0 drops it

	// The rows that the item lists: words and markers by places among its tokens, spans by places
	// among its words. A program that has no such rows ignores them.
	Words, Markers, Spans Places
}

// Places lists rows of one kind. Row r is made of the rows First[r] to Last[r], counted from 0 in
// the item's sequence; markers have no Last.
type Places struct{ First, Last []int32 }

// bytes returns the size of what the item brings.
func (in *Inputs) bytes() int64 {
	n := len(in.IDs)
	for _, p := range []*Places{&in.Words, &in.Markers, &in.Spans} {
		n += len(p.First) + len(p.Last)
	}
	return 4 * int64(n)
}

// packInputs lays the inputs of items end to end, at the places cu.
func packInputs(items []*Item, cu []int32) Inputs {
	return Inputs{
		IDs:     concatenate(items, cu, 0, func(in *Inputs) []int32 { return in.IDs }),
		TypeIDs: concatenate(items, cu, 0, func(in *Inputs) []int32 { return in.TypeIDs }),
		Keep:    concatenate(items, cu, 1, func(in *Inputs) []uint8 { return in.Keep }),
		Words:   joinPlaces(items, func(in *Inputs) *Places { return &in.Words }),
		Markers: joinPlaces(items, func(in *Inputs) *Places { return &in.Markers }),
		Spans:   joinPlaces(items, func(in *Inputs) *Places { return &in.Spans }),
	}
}

// joinPlaces lays the places of one kind of rows end to end: they count from 0 in each sequence, so
// that nothing is added to them.
func joinPlaces(items []*Item, of func(*Inputs) *Places) (all Places) {
	for _, it := range items {
		p := of(&it.Inputs)
		all.First, all.Last = append(all.First, p.First...), append(all.Last, p.Last...)
	}
	return all
}

// cuRows returns where each item's rows of one kind begin, from 0 to the number of all; nil if
// there are none.
func cuRows(items []*Item, of func(*Inputs) *Places) (cu []int32) {
	for i, it := range items {
		p := of(&it.Inputs)
		rows := int32(max(len(p.First), len(p.Last)))
		if rows > 0 && cu == nil {
			cu = make([]int32, len(items)+1)
		}
		if cu != nil {
			cu[i+1] = cu[i] + rows
		}
	}
	return cu
}

// concatenate lays one input of the items end to end. Items that leave it out get otherwise. It
// returns nil if all of them do.
func concatenate[T int32 | uint8](items []*Item, cu []int32, otherwise T, of func(*Inputs) []T) (out []T) {
	for i, it := range items {
		values := of(&it.Inputs)
		if values != nil && out == nil {
			out = make([]T, cu[len(items)])
			fill(out[:cu[i]], otherwise)
		}
		if out == nil {
			continue
		}
		if mine := out[cu[i]:cu[i+1]]; values != nil {
			copy(mine, values)
		} else {
			fill(mine, otherwise)
		}
	}
	return out
}

// fill sets values that are all 0.
func fill[T int32 | uint8](values []T, to T) {
	if to == 0 {
		return
	}
	for i := range values {
		values[i] = to
	}
}
