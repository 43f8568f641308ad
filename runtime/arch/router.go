package arch

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sie-engine/sie/runtime/engine"
)

// A Router module sends queries and documents through separate modules (sentence-transformers 5).
// Some sparse encoders have one: a query is looked up in a table, and only documents pass through
// the encoder.

const routerFile = "router_config.json"

// maxRoutes bounds the routes of a router.
const maxRoutes = 16

// readRouter reads the modules of each route of the Router module in folder. It returns nil if the
// module's file is missing.
func readRouter(dir fs.FS, folder string) (map[string][]module, error) {
	var c struct {
		Types      map[string]string   `json:"types"`     // by the module's folder
		Structure  map[string][]string `json:"structure"` // folders by route
		Parameters struct {
			Mappings map[string]string `json:"route_mappings"`
		} `json:"parameters"`
	}
	name := path.Join(folder, routerFile)
	found, err := optional(readJSON(dir, name, &c))
	if err != nil || !found {
		return nil, err
	}
	if len(c.Structure) == 0 || len(c.Structure) > maxRoutes {
		return nil, refuse(name, "structure", "has %d routes; 1 to %d are possible",
			len(c.Structure), maxRoutes)
	}
	if len(c.Parameters.Mappings) > 0 {
		return nil, refuse(name, "parameters.route_mappings",
			"is not supported; routes named query and document are")
	}
	routes := make(map[string][]module, len(c.Structure))
	for route, ids := range c.Structure {
		if len(ids) == 0 || len(ids) > maxModules {
			return nil, refuse(name, "structure", "route %.60q has %d modules; 1 to %d are possible",
				route, len(ids), maxModules)
		}
		for _, id := range ids {
			class, ok := c.Types[id]
			at := path.Join(folder, id)
			if !ok || !filepath.IsLocal(filepath.FromSlash(at)) {
				return nil, refuse(name, "structure",
					"%.60q of route %.60q is not among the types, or leads out of the model directory",
					id, route)
			}
			routes[route] = append(routes[route],
				module{class, class[strings.LastIndexByte(class, '.')+1:], at})
		}
	}
	return routes, nil
}

// sparseChain is the chain of a sparse encoder.
type sparseChain struct {
	chain
	transform engine.Sparse // of the largest logits
	// folder of the table with the weights of a query's tokens; "" = queries run like documents
	queryTable string
}

// readSparseChain reads the modules of a sparse encoder. They are a masked language model and
// SpladePooling, or a router whose documents pass through these two.
func readSparseChain(dir fs.FS) (sparseChain, error) {
	c := sparseChain{chain: encoderAlone(taskMasked)}
	modules, err := readModules(dir)
	if err != nil {
		return c, err
	}
	file := modulesFile
	if len(modules) == 1 && modules[0].kind == "Router" {
		routes, err := readRouter(dir, modules[0].path)
		if err != nil {
			return c, err
		}
		if routes == nil {
			return readSparseFolders(dir, c)
		}
		file = path.Join(modules[0].path, routerFile)
		if modules = routes["document"]; modules == nil {
			return c, refuse(file, "structure", "has no route named document")
		}
		query, ok := routes["query"]
		switch {
		case ok && slices.Equal(query, modules):
		case ok && len(query) == 1 && query[0].kind == "SparseStaticEmbedding":
			c.queryTable = query[0].path
		default:
			return c, refuse(file, "structure",
				"the route query must be one SparseStaticEmbedding, or the modules of documents")
		}
		if len(routes) > 2 {
			return c, refuse(file, "structure", "has %d routes; query and document are supported",
				len(routes))
		}
	}
	if modules == nil { // a directory that transformers saved
		c.transform, err = readSpladePooling(dir, "")
		return c, err
	}
	if !slices.ContainsFunc(modules, func(m module) bool { return m.kind == "SpladePooling" }) &&
		file == modulesFile {
		c.encoderDir, err = readBareChain(modules)
		return c, err
	}
	for i, m := range modules {
		switch {
		case i == 0 && (m.kind == "Transformer" || m.kind == "MLMTransformer"):
			c.encoderDir = m.path
		case i == 1 && m.kind == "SpladePooling":
			if c.transform, err = readSpladePooling(dir, m.path); err != nil {
				return c, err
			}
		default:
			return c, refuse(file, "type",
				"module %d is %q; a sparse encoder is a Transformer or MLMTransformer and then SpladePooling",
				i, m.class)
		}
	}
	if len(modules) != 2 {
		return c, refuse(file, "type", "there is no SpladePooling module")
	}
	return c, nil
}

// readSparseFolders finds the documents' modules by the names of their folders, for a router whose
// file is missing.
func readSparseFolders(dir fs.FS, c sparseChain) (sparseChain, error) {
	pooling, err := moduleFolder(dir, "SpladePooling")
	if err != nil {
		return c, err
	}
	if c.transform, err = readSpladePooling(dir, pooling); err != nil {
		return c, err
	}
	c.encoderDir, err = moduleFolder(dir, "Transformer", "MLMTransformer")
	return c, err
}

// moduleFolder returns the folder that sentence-transformers made for a module of one of the
// classes. Where there are routes it is that of documents. It returns "" if there is none.
func moduleFolder(dir fs.FS, classes ...string) (string, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		for _, class := range classes {
			if e.IsDir() && strings.HasSuffix(e.Name(), "_"+class) && !strings.HasPrefix(e.Name(), "query_") {
				return e.Name(), nil
			}
		}
	}
	return "", nil
}
