package batch

// Inputs holds what items bring for each of their tokens, by the names that programs give their
// inputs. An Item has those of its sequence, a Packed batch those of all its sequences end to end.
// A nil input is left out: the program then takes the value that stands beside it here.
type Inputs struct {
	IDs     []int32 // token ids, special tokens included; never left out
	TypeIDs []int32 // 0
	Keep    []uint8 // 1: the batch keeps the token's row; 0 drops it
}

// packInputs lays the inputs of items end to end, at the places cu.
func packInputs(items []*Item, cu []int32) Inputs {
	return Inputs{
		IDs:     concatenate(items, cu, 0, func(in *Inputs) []int32 { return in.IDs }),
		TypeIDs: concatenate(items, cu, 0, func(in *Inputs) []int32 { return in.TypeIDs }),
		Keep:    concatenate(items, cu, 1, func(in *Inputs) []uint8 { return in.Keep }),
	}
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
