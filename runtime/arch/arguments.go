package arch

import (
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
)

// moduleArguments lists the arguments that a Transformer module passes on to transformers: their
// key, the one of releases before 5.4, and the arguments among them that change nothing here, or
// are read elsewhere. Others may change anything that config.json and tokenizer_config.json say.
var moduleArguments = []struct {
	keys     [2]string
	harmless []string
}{
	{[2]string{"config_kwargs", "config_args"}, nil},
	{[2]string{"model_kwargs", "model_args"}, []string{"device_map", "low_cpu_mem_usage",
		"use_safetensors", "use_memory_efficient_attention", "unpad_inputs"}},
	{[2]string{"processor_kwargs", "tokenizer_args"}, []string{"model_max_length", "padding", "padding_side",
		"pad_to_multiple_of", "use_fast"}},
}

// harmlessArguments change nothing wherever they stand. sentence-transformers replaces most.
var harmlessArguments = []string{"attn_implementation", "cache_dir", "dtype", "local_files_only", "revision",
	"subfolder", "token", "torch_dtype", "trust_remote_code", "use_cache"}

// roleArguments lists what changes how a module reads queries, or documents, alone (from release 6
// on).
var roleArguments = []string{"query_length", "document_length", "query_expansion"}

// checkArguments refuses arguments in a Transformer module's file that change what it computes.
func checkArguments(dir fs.FS, file string) error {
	var all map[string]json.RawMessage
	if err := needJSON(dir, file, &all); err != nil {
		return err
	}
	if raw := all["tokenizer_name_or_path"]; raw != nil && string(raw) != "null" {
		return refuse(file, "tokenizer_name_or_path",
			"is %.60s; a tokenizer of another repository is not supported here", raw)
	}
	for _, key := range roleArguments {
		if raw := all[key]; raw != nil && string(raw) != "null" {
			return refuse(file, key,
				"is %.60s; queries are read as documents are here: max_seq_length gives one length for both", raw)
		}
	}
	for _, kind := range moduleArguments {
		for _, key := range kind.keys {
			var given map[string]json.RawMessage
			if raw := all[key]; raw != nil && json.Unmarshal(raw, &given) != nil {
				return refuse(file, key, "is %.60s; an object is wanted", raw)
			}
			for _, name := range slices.Sorted(maps.Keys(given)) {
				if !slices.Contains(kind.harmless, name) && !slices.Contains(harmlessArguments, name) {
					return refuse(file, key, "%.60s is %.60s, which is not supported; put it into the file that it is about",
						name, given[name])
				}
			}
		}
	}
	return nil
}
