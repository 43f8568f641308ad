package arch

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"slices"
)

// commonNeutral lists keys that any configuration may have, with the value that changes nothing:
// weights in a packed form of few bits, weights of which heads were removed, and a model of two
// parts.
var commonNeutral = map[string]any{
	"quantization_config": nil, "compression_config": nil, "pruned_heads": nil, "is_encoder_decoder": false,
}

// refuseCommon refuses a configuration in folder that asks for what no architecture here computes.
func refuseCommon(dir fs.FS, folder string) error {
	return refuseIn(dir, path.Join(folder, configFile), commonNeutral)
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
