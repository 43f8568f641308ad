package arch

// LabelRows are the rows of one sequence that the head reads, by their places.
type LabelRows struct {
	First, Last []int32 // of each label's row or rows, both included
	Text        []int32 // LabelLayout.TextRows: the text's rows, −1 for one of zeros
	Segments    []int32 // LabelLayout.Segments: of each row
}

// Rows finds the rows of a sequence. A label whose marker or rows the sequence does not have is
// left out, with all behind it: such a sequence has fewer rows of labels than labels.
func (l *LabelLayout) Rows(ids []int32) (r LabelRows) {
	n := int32(len(ids))
	sep, example, other := n, false, int32(-1)
	var markers []int32
	for i, id := range ids {
		switch {
		case id == l.Label:
			markers = append(markers, int32(i))
		case id == l.Sep && sep == n:
			sep = int32(i)
		}
		if id == l.Example {
			example = true
		} else if other < 0 {
			other = int32(i)
		}
	}
	for k, first := range markers {
		end := n
		if k+1 < len(markers) {
			end = markers[k+1]
		} else if l.ToText && sep > first {
			end = sep
		}
		if l.After {
			first++
		}
		if !l.Average {
			end = first + 1
		}
		if first >= min(end, n) {
			break
		}
		r.First, r.Last = append(r.First, first), append(r.Last, end-1)
	}
	if sep == n {
		sep = 0 // as the package has it
	}
	if l.TextRows {
		from := int32(0)
		if l.ToText {
			from = sep
		}
		for i := from; i < n; i++ {
			r.Text = append(r.Text, i)
		}
		for range from {
			if l.Filled {
				r.Text = append(r.Text, -1)
			}
		}
	}
	if l.Segments {
		r.Segments = make([]int32, n)
		for i := range r.Segments {
			switch {
			case example && int32(i) >= other:
				r.Segments[i] = 2
			case int32(i) >= sep:
				r.Segments[i] = 1
			}
		}
	}
	return r
}
