package arch

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"slices"
)

// commonNeutral lists keys that any configuration may have, with the value that changes nothing:
// weights in a packed form of few bits, and weights of which heads were removed.
var commonNeutral = map[string]any{
	"quantization_config": nil, "compression_config": nil, "pruned_heads": nil,
}

// refuseCommon refuses a configuration in folder that asks for what no architecture here computes.
func refuseCommon(dir fs.FS, folder string) error {
	return refuseIn(dir, path.Join(folder, configFile), commonNeutral)
}

// refuseTwoParts refuses the configuration in dir of an encoder with a decoder, but for T5's: its
// files say that of the encoder, too, which is computed alone.
func refuseTwoParts(dir fs.FS, e encoder) error {
	if _, alone := e.(*t5); alone {
		return nil
	}
	return refuseUnknownMeaning(dir, map[string]any{"is_encoder_decoder": false})
}

// refuseCausal refuses the configuration in dir of an encoder whose tokens see both ways if it says
// is_causal: in transformers they do not then, but where a batch has padding.
func refuseCausal(dir fs.FS, e encoder) error {
	if m, decoder := e.(*qwen); decoder && !m.config.bidirectional {
		return nil
	}
	return refuseUnknownMeaning(dir, map[string]any{"is_causal": false})
}

// refuseUnknownMeaning refuses keys of config.json whose value is not the neutral one.
func refuseUnknownMeaning(dir fs.FS, neutral map[string]any) error {
	return refuseIn(dir, configFile, neutral)
}

// refuseIn refuses keys of a file whose value is neither the neutral one, nor null, nor empty.
func refuseIn(dir fs.FS, file string, neutral map[string]any) error {
	var all map[string]json.RawMessage
	if err := needJSON(dir, file, &all); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(neutral)) {
		var value any
		if raw, ok := all[key]; !ok || json.Unmarshal(raw, &value) != nil || value == nil {
			continue
		}
		possible := "leave it out"
		switch v := value.(type) {
		case map[string]any:
			if len(v) == 0 {
				continue
			}
		case []any: // slices and maps are not comparable
			if len(v) == 0 {
				continue
			}
		default:
			if value == neutral[key] {
				continue
			}
		}
		if own, err := json.Marshal(neutral[key]); err == nil && neutral[key] != nil {
			possible = string(own) + " is possible"
		}
		return refuse(file, key, "is %.60s, which changes what the model computes and is not supported; %s",
			all[key], possible)
	}
	return nil
}
