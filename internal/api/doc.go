// Package api defines the wire format of the HTTP API, and nothing else: it turns requests into Go
// values and results into bytes.
//
// Entry points: [DecodeEncode], [DecodeScore], [DecodeExtract] and [DecodeEmbeddings] read a body
// in msgpack or JSON; [DecodeRerank] and [DecodeTEIEmbed] with its siblings read other APIs'
// requests in JSON. AppendEncodeMsgpack, AppendEncodeJSON and their siblings write an answer into a
// caller's buffer. [AppendItem], [ReadItem], [AppendEncodeResult], [ReadEncodeResult] and their
// siblings are for components that send each other parts of requests and answers. [ResponseFormat]
// and [IsMsgpack] negotiate the format. Options are decoded but not interpreted: package catalog
// defines their meaning.
//
// Requests are not trusted. Decoding is one pass without reflection over one private copy of the
// body, or over the body itself where the caller gives it away ([Limits]). Strings and media of a
// request alias it, so a request keeps roughly one body's worth of memory alive. Memory is bounded
// by the bytes received, not by the counts they claim, and nesting is bounded. Every rejection is
// an *errs.Error with code INVALID_INPUT or INPUT_TOO_LONG, whose text is the reference server's
// text for the same bytes.
//
// The package starts no goroutine, keeps no state, logs nothing and knows no HTTP server.
package api

import "strings"

// Format is the encoding of a body.
type Format uint8

// The encodings.
const (
	Msgpack Format = iota
	JSON
)

// The content types of answers.
const (
	ContentTypeMsgpack = "application/msgpack"
	ContentTypeJSON    = "application/json"
)

// ContentType returns the value of the Content-Type header for f.
func (f Format) ContentType() string {
	if f == JSON {
		return ContentTypeJSON
	}
	return ContentTypeMsgpack
}

// String returns "msgpack" or "json".
func (f Format) String() string {
	if f == JSON {
		return "json"
	}
	return "msgpack"
}

// ResponseFormat returns the encoding of a successful encode, score or extract answer for an Accept
// header. It is msgpack unless the header names application/json and no msgpack type. Errors are
// always JSON.
func ResponseFormat(accept string) Format {
	if accept == "" {
		return Msgpack
	}
	a := strings.ToLower(accept)
	if namesMsgpack(a) || !strings.Contains(a, ContentTypeJSON) {
		return Msgpack
	}
	return JSON
}

// IsMsgpack reports whether a Content-Type header announces a msgpack body. Every other body is
// read as JSON.
func IsMsgpack(contentType string) bool { return namesMsgpack(strings.ToLower(contentType)) }

func namesMsgpack(lower string) bool {
	return strings.Contains(lower, ContentTypeMsgpack) || strings.Contains(lower, "application/x-msgpack")
}
