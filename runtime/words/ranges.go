package words

// Ranges returns the windows in which a union of models reads a text: size words each, of which the
// last `overlap` are the next window's first. A text of at most size words is one range, which is
// all of it; other ranges begin and end with words. More ranges than most are a *BoundError, unless
// most is 0. size is more than overlap.
func Ranges(text string, size, overlap, most int) ([]Word, error) {
	var all []Word
	for w := range Split(text) {
		all = append(all, w)
		if n := len(all) - size; most > 0 && n > 0 && (n-1)/(size-overlap)+2 > most {
			return nil, tooManyWindows(most)
		}
	}
	if len(all) <= size {
		return []Word{{End: points(text), To: len(text)}}, nil
	}
	var out []Word
	for first := 0; ; first += size - overlap {
		last := min(first+size, len(all)) - 1
		out = append(out, Word{all[first].Start, all[last].End, all[first].From, all[last].To})
		if last == len(all)-1 {
			return out, nil
		}
	}
}
