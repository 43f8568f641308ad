package main

import (
	"context"
	"fmt"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/arch"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/runtime/task"
	"github.com/sie-engine/sie/weights/hub"
)

// adapterPoolings are the catalog's names of the poolings that an adapter's chain can have.
var adapterPoolings = map[engine.Pooling]catalog.Pooling{
	engine.PoolCLS: catalog.PoolingCLS, engine.PoolMean: catalog.PoolingMean,
	engine.PoolLast: catalog.PoolingLast,
}

// withAdapter makes a model of the base that an adapter names, with the adapter as the model's own:
// requests get it unless they name another. adapter is its repository or directory. Only a
// directory may name a base by its path.
func withAdapter(
	ctx context.Context, id, adapter string, a arch.AdapterBase, resolver *hub.Resolver,
) (*catalog.Model, error) {
	info := catalog.AdHocInfo{
		Revision: a.Revision, Pooling: adapterPoolings[a.Pooling], Normalize: a.Normalize,
		LoRA: &catalog.LoRA{Name: adapter, ID: adapter}, MaxSequenceLength: int(a.MaxSeqLen),
	}
	switch {
	case a.Query == nil: // the base's prompts count
	case *a.Query == "" && *a.Document == "":
		info.NoPrompts = true
	default:
		info.QueryTemplate = catalog.PrefixTemplate(*a.Query)
		info.DocTemplate = catalog.PrefixTemplate(*a.Document)
	}
	var err error
	switch {
	case catalog.IsPath(adapter) && isModelDir(a.Model):
		info.Revision = ""
		if info.WeightsPath, err = modelDir(a.Model); err == nil {
			info.Family, err = task.Detect(info.WeightsPath)
		}
	case !catalog.IsHubID(a.Model):
		err = fmt.Errorf("adapter_config.json: base_model_name_or_path: %.100q is no repository of the hub",
			a.Model)
	default:
		info.HFID = a.Model
		ctx, cancel := context.WithTimeout(ctx, previewTime)
		defer cancel()
		var dir string
		var remove func()
		if dir, remove, err = resolver.Preview(ctx, a.Model, a.Revision, arch.DetectedBy...); err == nil {
			info.Family, err = task.Detect(dir)
			remove()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the base of the adapter %s: %w", adapter, err)
	}
	return catalog.AdHoc(id, info)
}
