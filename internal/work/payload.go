package work

import "github.com/tinylib/msgp/msgp"

// Detach moves what Payload holds out of a work item into a payload of its own. The payload shares
// its values with the item.
func (it *Item) Detach(items []msgp.Raw) Payload {
	p := Payload{
		Items: items, Query: it.Query, OutputTypes: it.OutputTypes, Instruction: it.Instruction,
		Options: it.Options, Labels: it.Labels, OutputSchema: it.OutputSchema,
	}
	it.Items, it.Query, it.OutputTypes, it.Instruction = nil, nil, nil, nil
	it.Options, it.Labels, it.OutputSchema = nil, nil, nil
	return p
}

// Attach puts a payload back into its work item, which names none afterwards.
func (it *Item) Attach(p *Payload) {
	it.Items, it.Query, it.OutputTypes, it.Instruction = p.Items, p.Query, p.OutputTypes, p.Instruction
	it.Options, it.Labels, it.OutputSchema = p.Options, p.Labels, p.OutputSchema
	it.PayloadRef, it.PayloadSHA256, it.PayloadBytes = "", nil, 0
}
