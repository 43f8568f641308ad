package task

// chatPrompt makes the prompt of the model's own chat template, which is tokenised as one string.
// An item that is too long keeps its beginning and what the template puts behind the document, as
// sentence-transformers does it.
func (r *run) chatPrompt(query string) (*prompt, error) {
	pair := r.use.Weights().Chat
	before := pair.Before(query)
	p, err := r.pieces(query, nil, []string{before}, []string{pair.After})
	if err != nil {
		return nil, err
	}
	p.joined = true
	p.write = func(text string) string { return before + pair.Document(text) + pair.After }
	return p, nil
}
