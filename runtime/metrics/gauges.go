package metrics

import "github.com/sie-engine/sie/internal/obs"

func (m *Metrics) register(
	labels []string, read func(set func(gauge int, value float64, labels ...string)), names ...string,
) {
	m.Registry.MustRegister(obs.Gauges(labels, read, names...))
}

// Models registers the gauges of loaded models. read reports every loaded model on every device. It
// reports a model that was loaded and no longer is with 0 bytes.
func (m *Metrics) Models(read func(report func(model, device string, bytes int64))) {
	m.register([]string{"model", "device"}, func(set func(int, float64, ...string)) {
		up := make(map[[2]string]bool)
		read(func(model, device string, bytes int64) {
			if bytes > 0 && !up[[2]string{model, device}] {
				up[[2]string{model, device}] = true
				set(0, 1, model, device)
			}
			set(0, 0, model, device)
			set(1, float64(bytes), model, device)
		})
	}, "sie_model_loaded", "1 while the model is loaded.", "sie_model_memory_bytes",
		"Packed weights of a loaded model.")
}

// DeviceMemory registers the memory gauges of GPUs. read reports each GPU's bytes.
func (m *Metrics) DeviceMemory(read func(report func(device string, used, total int64))) {
	m.register([]string{"device"}, func(set func(int, float64, ...string)) {
		read(func(device string, used, total int64) {
			set(0, float64(used), device)
			set(1, float64(total), device)
		})
	}, "sie_device_memory_used_bytes", "Memory of a GPU in use, by any process.",
		"sie_device_memory_total_bytes", "Memory of a GPU.")
}

// GraphsRefused registers a gauge of the captures that each GPU's driver refused.
func (m *Metrics) GraphsRefused(read func(report func(device string, graphs int64))) {
	m.register([]string{"device"}, func(set func(int, float64, ...string)) {
		read(func(device string, graphs int64) { set(0, float64(graphs), device) })
	}, "sie_device_graphs_refused", "CUDA graphs that the driver refused; their batches run kernel by kernel.")
}

// Activations registers a gauge of the memory that batches take on each device. Packed weights are
// not part of it.
func (m *Metrics) Activations(read func(report func(device string, bytes int64))) {
	m.register([]string{"device"}, func(set func(int, float64, ...string)) {
		read(func(device string, bytes int64) { set(0, float64(bytes), device) })
	}, "sie_device_activation_bytes", "Memory of batches, beside packed weights.")
}

// QueueDepth registers a gauge of the items that are queued for each model.
func (m *Metrics) QueueDepth(read func(report func(model string, items int))) {
	m.register([]string{"model"}, func(set func(int, float64, ...string)) {
		read(func(model string, items int) { set(0, float64(items), model) })
	}, "sie_queue_depth", "Items queued.")
}
