package api

import (
	"strconv"

	"github.com/sie-engine/sie/internal/errs"
)

// Item is one input to encode, score or extract from. Strings and media alias the request's own
// bytes of the body; treat them as read-only.
type Item struct {
	ID      string
	Text    string
	HasID   bool // the request named an id, possibly empty; the answer repeats it
	HasText bool // an empty text is a text
	Extra   *ItemExtra
	// Raw is the item as it came, a msgpack map; see Limits.KeepItems. "": not kept.
	Raw string
}

// Tokens returns the token ids that an item has instead of a text, or nil.
func (it *Item) Tokens() []int32 {
	if it.Extra == nil {
		return nil
	}
	return it.Extra.Tokens
}

// Second returns the text that is read as a pair with the item's own text, or nil.
func (it *Item) Second() *string {
	if it.Extra == nil {
		return nil
	}
	return it.Extra.Second
}

// ItemExtra holds the parts of an item other than its text. No native body sets Second or Tokens;
// requests of other APIs do.
type ItemExtra struct {
	Second   *string // read together with Text as a pair; nil: none
	Tokens   []int32 // token ids instead of Text, used unchanged, special tokens included
	Images   []Media
	Audio    *Media
	Video    *Media
	Document *Media
	Metadata Raw // an object, or empty
}

// Media is an encoded image, sound, film or document. Format is the sender's hint. Some clients
// send a wrong one, so detect the format from the bytes.
type Media struct {
	Data       []byte // nil: not sent; see NoMediaData
	Format     string
	SampleRate int64 // audio, in Hz; 0: not given
}

// Options holds the free-form options of a request, bounded in number and depth. The types are nil,
// bool, int64, float64, string, []byte, []any, map[string]any and, for the one option whose keys
// have an order, Ordered. They are not checked further, because their meaning depends on the model.
type Options map[string]any

// Ordered is the value of options.label_groups: an object whose keys keep the order in which the
// client wrote them, because the model reads groups of labels in that order. A key that is there
// twice has its first place and its last value.
type Ordered struct {
	Keys   []string
	Values map[string]any
}

// orderedOption is the option whose value is decoded as an Ordered.
const orderedOption = "label_groups"

// EncodeRequest is the body of POST /v1/encode/{model}.
type EncodeRequest struct {
	Items       []Item   // at least one
	OutputTypes []string // params.output_types; nil: not given
	OutputDType string   // params.output_dtype; "": not given
	Instruction *string  // params.instruction
	IsQuery     *bool    // params.is_query; only the TypeScript SDK sends it
	Options     Options  // params.options

	ForeignOptions
}

// ScoreRequest is the body of POST /v1/score/{model}.
type ScoreRequest struct {
	Query       Item
	Items       []Item // at least one
	Instruction *string
	Options     Options

	ForeignOptions
}

// ClassifyRequest asks for the scores of all labels of a classification head. It has no native
// route.
type ClassifyRequest struct {
	Items     []Item // all of them texts, or all of them pairs (ItemExtra.Second)
	RawScores bool   // the head's logits; else their softmax, or the sigmoid of a single one
	Options   Options

	ForeignOptions
}

// ForeignOptions holds what the clients of other APIs can ask for beyond a native request. No
// native body sets it.
type ForeignOptions struct {
	Field        string // the client's name for the items, for errors; "": items
	Dimensions   int    // keep the first components of a vector and normalise again; 0: as the options say
	TruncateLeft bool   // cut the start of an input that is too long, not its end
}

// ExtractRequest is the body of POST /v1/extract/{model}. A params.threshold, which only the
// TypeScript SDK sends, becomes the option "threshold" unless the options already have one.
type ExtractRequest struct {
	Items        []Item // at least one
	Labels       []string
	OutputSchema Raw // an object, or empty
	Instruction  *string
	Options      Options
}

// EmbeddingsRequest is the body of POST /v1/embeddings. Exactly one of Texts and Tokens is set.
type EmbeddingsRequest struct {
	Model      string
	Texts      []string
	Tokens     [][]int32 // token ids, non-negative; each list has at least one
	Base64     bool      // encoding_format is base64
	Dimensions int       // 0: not given, else at least 1
	User       string
}

// Inputs returns the number of texts or token lists.
func (r *EmbeddingsRequest) Inputs() int { return len(r.Texts) + len(r.Tokens) }

// NoMediaData returns the 400 for media without data; kind is image, video or document.
func NoMediaData(kind string, item int) error {
	return errs.Invalid("items["+strconv.Itoa(item)+"]", kind+" input must be a mapping with a 'data' field")
}
