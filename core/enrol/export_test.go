package enrol

import "time"

// Patient has a client of a test give curators longer than any machine needs.
func Patient(c *Client) *Client {
	c.connectTimeout, c.callTimeout = time.Hour, time.Hour
	return c
}
