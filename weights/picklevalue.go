package weights

import (
	"errors"
	"fmt"
)

// This file implements the functions that a pickle may call.

// persistent makes a storage from the id on the stack: ("storage", class, key, device, elements).
func (u *unpickler) persistent() error {
	v, err := u.pop()
	if err != nil {
		return err
	}
	id, _ := v.(tuple)
	if len(id) != 5 || id[0] != "storage" {
		return errors.New("a persistent id that is not a storage")
	}
	class, _ := id[1].(symbol)
	dtype, ok := storageTypes[class.name]
	key, isText := id[2].(string)
	count, isInt := id[4].(int64)
	if !ok || !isText || !isInt || count < 0 {
		return errors.New("a storage without element type, key or size")
	}
	return u.push(storageRef{dtype, key, count})
}

// reduce calls the function below the argument tuple on the stack.
func (u *unpickler) reduce() error {
	items, err := u.popN(2)
	if err != nil {
		return err
	}
	function, isSymbol := items[0].(symbol)
	args, isTuple := items[1].(tuple)
	if !isSymbol || !isTuple {
		return errors.New("calls what is not a function")
	}
	switch function.name {
	case "OrderedDict":
		if len(args) > 0 {
			return errors.New("an OrderedDict with arguments; torch.save writes none")
		}
		return u.push(&dict{map[string]any{}})
	case "_rebuild_parameter": // (data, requires_grad, hooks)
		if len(args) > 0 {
			if v, ok := args[0].(tensorView); ok {
				return u.push(v)
			}
		}
		return errors.New("a parameter without a tensor")
	case "_rebuild_tensor_v2": // (storage, offset, size, stride, requires_grad, hooks[, metadata])
		v, err := rebuild(args)
		if err != nil {
			return err
		}
		return u.push(v)
	}
	return fmt.Errorf("calls %s, which is not a function of tensors", quoted(function.name))
}

// rebuild makes a view of a storage. view.entry checks later that the view lies inside the storage.
func rebuild(args tuple) (tensorView, error) {
	if len(args) < 4 {
		return tensorView{}, errors.New("a tensor with too few arguments")
	}
	storage, ok := args[0].(storageRef)
	offset, isInt := args[1].(int64)
	shape, hasShape := naturals(args[2])
	stride, hasStride := naturals(args[3])
	switch {
	case !ok || !isInt || offset < 0 || !hasShape || !hasStride:
		return tensorView{}, errors.New(
			"a tensor whose storage, offset, shape or stride is not what it should be")
	case len(shape) != len(stride):
		return tensorView{}, fmt.Errorf("a tensor of %d dimensions with %d strides", len(shape), len(stride))
	}
	return tensorView{storage, offset, shape, stride}, nil
}

// naturals reads a tuple of at most maxTensorRank non-negative integers.
func naturals(v any) ([]int64, bool) {
	items, ok := v.(tuple)
	if !ok || len(items) > maxTensorRank {
		return nil, false
	}
	out := make([]int64, len(items))
	for i, item := range items {
		n, isInt := item.(int64)
		if !isInt || n < 0 {
			return nil, false
		}
		out[i] = n
	}
	return out, true
}

// The bounds on the dictionaries of a pickle. A checkpoint's tensors are one to three levels deep
// ("model.state.weight").
const (
	maxDictDepth  = 8
	maxDictVisits = 1 << 20
	maxNameBytes  = 4096
)

// tensorViews collects the tensors of a pickle's value by name. The name of a tensor in a nested
// dictionary is the keys on the way to it, joined by dots. Other values are ignored.
func tensorViews(value any) (map[string]tensorView, error) {
	out := make(map[string]tensorView)
	visits := 0
	var walk func(d *dict, prefix string, depth int) error
	walk = func(d *dict, prefix string, depth int) error {
		if depth == maxDictDepth {
			return fmt.Errorf("has dictionaries more than %d deep", maxDictDepth)
		}
		for key, v := range d.entries {
			if visits++; visits > maxDictVisits {
				return fmt.Errorf("has more than %d entries", maxDictVisits)
			}
			if len(prefix)+len(key) > maxNameBytes {
				return fmt.Errorf("has a name of more than %d bytes", maxNameBytes)
			}
			name := prefix + key
			switch v := v.(type) {
			case tensorView:
				if _, twice := out[name]; twice {
					return &FormatError{Tensor: name, Reason: "occurs twice"}
				}
				if len(out) == maxTensors {
					return fmt.Errorf("has more than %d tensors", maxTensors)
				}
				out[name] = v
			case *dict:
				if err := walk(v, name+".", depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	d, ok := value.(*dict)
	if !ok {
		return nil, errors.New("is not a dictionary of tensors; save the model's state_dict")
	}
	if err := walk(d, "", 0); err != nil {
		return nil, err
	}
	return out, nil
}
