package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The pickle of a torch file is a program for a stack machine (CPython Lib/pickletools.py). This
// machine builds plain values only. It knows the opcodes that torch.save writes for tensors in
// dictionaries, and the functions that `global` below lists, each of which makes one of our own
// values. Nothing named in the file is looked up or run. Any other opcode or name ends the reading
// with an error that names it.

// The bounds of a pickle. A model of 10,000 tensors takes 2 MB and 500,000 opcodes.
const (
	maxPickleBytes  = 16 << 20
	maxPickleOps    = 1 << 21
	maxPickleMarks  = 256 // nesting of lists, tuples and dictionaries that are being built
	maxPickleMemo   = 1 << 20
	maxTensorRank   = maxRank
	maxIntegerBytes = 8
)

// The values of the machine, in addition to nil, bool, int64, float64 and string.
type (
	tuple  []any
	dict   struct{ entries map[string]any } // entries whose keys are not strings are dropped
	list   struct{}                         // its items are dropped: no checkpoint keeps tensors there
	symbol struct{ module, name string }    // a function or class that global accepts

	storageRef struct { // one persistent id: a member of the archive with count elements
		dtype DType
		key   string
		count int64
	}
	// tensorView is a tensor: the elements offset + Σ index·stride of a storage.
	tensorView struct {
		storage       storageRef
		offset        int64
		shape, stride []int64
	}
)

// storageTypes maps torch's storage classes to element types.
var storageTypes = map[string]DType{
	"FloatStorage": F32, "HalfStorage": F16, "BFloat16Storage": BF16, "DoubleStorage": F64,
	"LongStorage": I64, "IntStorage": I32, "ShortStorage": I16, "CharStorage": I8, "ByteStorage": U8,
	"BoolStorage": Bool,
}

// global accepts the functions and classes that a pickle of tensors may name, and no others.
func global(module, name string) (symbol, error) {
	s := symbol{module, name}
	switch s {
	case symbol{"collections", "OrderedDict"}, symbol{"torch._utils", "_rebuild_tensor_v2"},
		symbol{"torch._utils", "_rebuild_parameter"}:
		return s, nil
	}
	if _, ok := storageTypes[name]; ok && (module == "torch" || module == "torch.storage") {
		return s, nil
	}
	return s, fmt.Errorf("names %s of %s, which is not a tensor; no code of a checkpoint is run: "+
		"save the model's state_dict alone, or convert it to safetensors", quoted(name), quoted(module))
}

// unpickler is the stack machine.
type unpickler struct {
	data  []byte
	at    int
	stack []any
	marks []int
	memo  map[int]any
}

var errPickleShort = errors.New("ends in the middle of an opcode; the file is damaged, download it again")

// unpickle runs a pickle and returns its final value. The value may contain itself.
func unpickle(data []byte) (any, error) {
	u := &unpickler{data: data, memo: make(map[int]any)}
	for range maxPickleOps {
		op, err := u.byte()
		if err != nil {
			return nil, err
		}
		if op == '.' {
			return u.pop()
		}
		at := u.at - 1
		if err := u.step(op); err != nil {
			return nil, fmt.Errorf("byte %d: %w", at, err)
		}
	}
	return nil, fmt.Errorf("has more than %d opcodes", maxPickleOps)
}

// step runs one opcode other than STOP.
func (u *unpickler) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		v, err := u.byte()
		if err == nil && (v < 2 || v > 5) {
			err = fmt.Errorf("pickle protocol %d; 2 to 5 are read", v)
		}
		return err
	case 0x95: // FRAME: its length changes nothing
		_, err := u.take(8)
		return err
	case 'N':
		return u.push(nil)
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		return u.push(op == 0x88)
	case 'K', 'M', 'J', 'G', 0x8a:
		return u.number(op)
	case 'X', 0x8c, 'U', 'T':
		s, err := u.text(op)
		if err != nil {
			return err
		}
		return u.push(s)
	case ')':
		return u.push(tuple{})
	case '}':
		return u.push(&dict{map[string]any{}})
	case ']':
		return u.push(&list{})
	case '(':
		if len(u.marks) == maxPickleMarks {
			return fmt.Errorf("nests more than %d deep", maxPickleMarks)
		}
		u.marks = append(u.marks, len(u.stack))
		return nil
	case 't':
		items, err := u.popMark()
		if err != nil {
			return err
		}
		return u.push(tuple(append([]any(nil), items...)))
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		items, err := u.popN(int(op-0x85) + 1)
		if err != nil {
			return err
		}
		return u.push(tuple(append([]any(nil), items...)))
	case 'a', 'e', 's', 'u':
		return u.fill(op)
	case 'q', 'r', 0x94, 'h', 'j':
		return u.memoize(op)
	case 'c', 0x93:
		return u.global(op)
	case 'Q':
		return u.persistent()
	case 'R':
		return u.reduce()
	case 'b': // BUILD: the attributes of an OrderedDict or parameter say nothing about tensors
		if _, err := u.pop(); err != nil {
			return err
		}
		_, err := u.top()
		return err
	}
	return fmt.Errorf("opcode %#02x does not occur in tensors; no code of a checkpoint is run", op)
}

// number pushes BININT1, BININT2, BININT, BINFLOAT or LONG1.
func (u *unpickler) number(op byte) error {
	width := map[byte]int{'K': 1, 'M': 2, 'J': 4, 'G': 8}[op]
	if op == 0x8a {
		n, err := u.byte()
		if err != nil {
			return err
		}
		if width = int(n); width > maxIntegerBytes {
			return fmt.Errorf("an integer of %d bytes; at most %d are possible", width, maxIntegerBytes)
		}
	}
	b, err := u.take(width)
	if err != nil {
		return err
	}
	if op == 'G' {
		return u.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	}
	var v uint64
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	if signed := op == 'J' || op == 0x8a; signed && width > 0 && width < 8 && b[width-1]&0x80 != 0 {
		v |= math.MaxUint64 << (8 * width)
	}
	return u.push(int64(v))
}

// text reads BINUNICODE, SHORT_BINUNICODE, SHORT_BINSTRING or BINSTRING.
func (u *unpickler) text(op byte) (string, error) {
	width := 1
	if op == 'X' || op == 'T' {
		width = 4
	}
	b, err := u.take(width)
	if err != nil {
		return "", err
	}
	n := uint32(b[0])
	if width == 4 {
		n = binary.LittleEndian.Uint32(b)
	}
	if int64(n) > int64(len(u.data)-u.at) {
		return "", errPickleShort
	}
	b, err = u.take(int(n))
	return string(b), err
}

// fill moves the values on top of the stack into the list or dictionary below them: APPEND,
// APPENDS, SETITEM, SETITEMS.
func (u *unpickler) fill(op byte) error {
	var items []any
	var err error
	switch op {
	case 'a':
		items, err = u.popN(1)
	case 's':
		items, err = u.popN(2)
	default:
		items, err = u.popMark()
	}
	if err != nil {
		return err
	}
	to, err := u.top()
	if err != nil {
		return err
	}
	if op == 'a' || op == 'e' {
		if _, ok := to.(*list); !ok {
			return errors.New("appends to what is not a list")
		}
		return nil
	}
	d, ok := to.(*dict)
	if !ok || len(items)%2 != 0 {
		return errors.New("sets items of what is not a dictionary")
	}
	for i := 0; i < len(items); i += 2 {
		if key, ok := items[i].(string); ok {
			d.entries[key] = items[i+1]
		}
	}
	return nil
}

// memoize writes the memo (BINPUT, LONG_BINPUT, MEMOIZE) or pushes from it (BINGET, LONG_BINGET).
func (u *unpickler) memoize(op byte) error {
	index := len(u.memo)
	if op != 0x94 {
		width := 1
		if op == 'r' || op == 'j' {
			width = 4
		}
		b, err := u.take(width)
		if err != nil {
			return err
		}
		if index = int(b[0]); width == 4 {
			index = int(binary.LittleEndian.Uint32(b))
		}
	}
	if op == 'h' || op == 'j' {
		v, ok := u.memo[index]
		if !ok {
			return fmt.Errorf("memo %d is empty", index)
		}
		return u.push(v)
	}
	v, err := u.top()
	if err != nil {
		return err
	}
	if len(u.memo) == maxPickleMemo {
		return fmt.Errorf("remembers more than %d values", maxPickleMemo)
	}
	u.memo[index] = v
	return nil
}

// global pushes the function that GLOBAL (two lines) or STACK_GLOBAL (two strings) names.
func (u *unpickler) global(op byte) error {
	var names [2]string
	if op == 0x93 {
		items, err := u.popN(2)
		if err != nil {
			return err
		}
		for i := range names {
			s, ok := items[i].(string)
			if !ok {
				return errors.New("a name that is not a string")
			}
			names[i] = s
		}
	} else {
		for i := range names {
			from := u.at
			for u.at < len(u.data) && u.data[u.at] != '\n' {
				u.at++
			}
			if u.at == len(u.data) {
				return errPickleShort
			}
			names[i] = string(u.data[from:u.at])
			u.at++
		}
	}
	s, err := global(names[0], names[1])
	if err != nil {
		return err
	}
	return u.push(s)
}

func (u *unpickler) byte() (byte, error) {
	b, err := u.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

func (u *unpickler) take(n int) ([]byte, error) {
	if n > len(u.data)-u.at {
		return nil, errPickleShort
	}
	b := u.data[u.at : u.at+n]
	u.at += n
	return b, nil
}

func (u *unpickler) push(v any) error {
	u.stack = append(u.stack, v)
	return nil
}

// lastMark returns the stack height below which no value may be taken: the height at the last mark.
func (u *unpickler) lastMark() int {
	if len(u.marks) == 0 {
		return 0
	}
	return u.marks[len(u.marks)-1]
}

// popN takes the n uppermost values, the lowest first. They are valid until the next push.
func (u *unpickler) popN(n int) ([]any, error) {
	if len(u.stack)-u.lastMark() < n {
		return nil, errors.New("takes more values than there are")
	}
	items := u.stack[len(u.stack)-n:]
	u.stack = u.stack[:len(u.stack)-n]
	return items, nil
}

func (u *unpickler) pop() (any, error) {
	items, err := u.popN(1)
	if err != nil {
		return nil, err
	}
	return items[0], nil
}

func (u *unpickler) top() (any, error) {
	if len(u.stack) == u.lastMark() {
		return nil, errors.New("takes more values than there are")
	}
	return u.stack[len(u.stack)-1], nil
}

// popMark takes everything above the last mark, and the mark.
func (u *unpickler) popMark() ([]any, error) {
	if len(u.marks) == 0 {
		return nil, errors.New("goes back to a mark that was not set")
	}
	items, _ := u.popN(len(u.stack) - u.lastMark())
	u.marks = u.marks[:len(u.marks)-1]
	return items, nil
}
