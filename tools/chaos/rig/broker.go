package rig

// Broker returns a URL of the cluster's own NATS server, with a user that may do everything.
func (c *Cluster) Broker() string {
	s, err := c.State()
	if err != nil {
		return ""
	}
	return s.NATS.URL
}
