package lora

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

const configFile = "adapter_config.json"

// config is the part of adapter_config.json that the computation depends on. fan_in_fan_out is left
// out: it describes the layout of the base's weight, and A and B have the same layout either way.
// Dropout is for training.
type config struct {
	baseModel string
	rank      int
	alpha     float64
	rslora    bool
	ranks     patterns // by module; they override rank
	alphas    patterns
	targets   targets
}

// unsupportedKeys lists keys that make PEFT compute something other than W·x + B·(A·x) on linears.
// Each must be empty.
var unsupportedKeys = map[string]string{
	"use_dora":                "DoRA is not supported",
	"use_qalora":              "QALoRA is not supported",
	"use_bdlora":              "BD-LoRA is not supported",
	"lora_bias":               "a bias on B is not supported",
	"modules_to_save":         "the adapter replaces whole modules of the base; train one without them",
	"layer_replication":       "layers that are replicated are not supported",
	"trainable_token_indices": "trained tokens are not supported",
	"target_parameters":       "parameters that are no linear's weight are not supported",
	"alora_invocation_tokens": "activated LoRA is not supported",
	"arrow_config":            "Arrow is not supported",
	"kasa_config":             "KaSA is not supported",
	"monteclora_config":       "MonteCLoRA is not supported",
}

// neutralInits lists the values of init_lora_weights that leave the base's weights unchanged.
var neutralInits = []string{"true", "false", "null", `"gaussian"`, `"eva"`, `"orthogonal"`}

func readConfig(dir string) (*config, error) {
	data, err := files.Read(filepath.Join(dir, configFile), maxConfigBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse(configFile, "", "is missing: this is no directory of a PEFT adapter")
	case errors.Is(err, files.ErrTooLarge):
		return nil, refuse(configFile, "", "is larger than %d bytes", maxConfigBytes)
	case err != nil:
		return nil, err
	}
	return parseConfig(data)
}

func parseConfig(data []byte) (c *config, err error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, refuse(configFile, "", "is not a JSON object: %v", err)
	}
	if err := checkKind(keys); err != nil {
		return nil, err
	}
	c = &config{rank: 8, alpha: 8} // PEFT's defaults
	for key, to := range map[string]any{
		"base_model_name_or_path": &c.baseModel, "r": &c.rank, "lora_alpha": &c.alpha,
		"use_rslora": &c.rslora,
	} {
		if raw, ok := keys[key]; ok && json.Unmarshal(raw, to) != nil { // null leaves the default
			return nil, refuse(configFile, key, "is %s, of the wrong type", clip(raw))
		}
	}
	if err := checkRank("r", float64(c.rank)); err != nil {
		return nil, err
	}
	if c.ranks, err = readPatterns("rank_pattern", keys["rank_pattern"]); err != nil {
		return nil, err
	}
	for _, p := range c.ranks {
		if err := checkRank("rank_pattern."+p.key, p.value); err != nil {
			return nil, err
		}
	}
	if c.alphas, err = readPatterns("alpha_pattern", keys["alpha_pattern"]); err != nil {
		return nil, err
	}
	c.targets, err = readTargets(keys)
	return c, err
}

// checkKind refuses everything that is not plain LoRA.
func checkKind(keys map[string]json.RawMessage) error {
	if kind := keys["peft_type"]; string(kind) != `"LORA"` {
		return refuse(configFile, "peft_type", "is %s; only \"LORA\" is supported", clip(kind))
	}
	if bias := keys["bias"]; !empty(bias) && string(bias) != `"none"` {
		return refuse(configFile, "bias",
			"is %s; only \"none\" is supported, because others change the base's biases", clip(bias))
	}
	names := make([]string, 0, len(keys))
	for key := range keys {
		names = append(names, key)
	}
	slices.Sort(names)
	for _, key := range names {
		if empty(keys[key]) {
			continue
		}
		if why, ok := unsupportedKeys[key]; ok {
			return refuse(configFile, key, "is %s: %s", clip(keys[key]), why)
		}
		if strings.HasPrefix(key, "use_") && key != "use_rslora" {
			return refuse(configFile, key, "is %s: this variant of LoRA is not known here", clip(keys[key]))
		}
	}
	if raw := keys["init_lora_weights"]; raw != nil && !slices.Contains(neutralInits, string(raw)) {
		return refuse(configFile, "init_lora_weights",
			"is %s, which changes the base's weights; convert the adapter with path_initial_model_for_weight_conversion of PEFT's save_pretrained",
			clip(raw))
	}
	return nil
}

func checkRank(field string, rank float64) error {
	if rank < 1 || rank > MaxRank || rank != math.Trunc(rank) {
		return refuse(configFile, field, "is %v; a whole number from 1 to %d is possible", rank, MaxRank)
	}
	return nil
}

// of returns the rank and the scale of a module. module is its full name in the trained model.
func (c *config) of(module string) (rank int, scale float64) {
	r, alpha := c.ranks.of(module, float64(c.rank)), c.alphas.of(module, c.alpha)
	if c.rslora {
		return int(r), alpha / math.Sqrt(r) // Kalajdzievski 2023, arXiv:2312.03732
	}
	return int(r), alpha / r
}

// empty reports whether a key is absent or switched off.
func empty(raw json.RawMessage) bool {
	switch string(bytes.Join(bytes.Fields(raw), nil)) {
	case "", "null", "false", "0", `""`, "[]", "{}":
		return true
	}
	return false
}

// clip returns a value, shortened, for a message.
func clip(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "missing"
	}
	return files.Clip(string(raw), 60)
}
