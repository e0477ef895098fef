package demo

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limits of the data, so that a query value cannot make a page or a pull of any
// size out of it.
const (
	maxOrders      = 10_000_000 // of one pull
	maxPageSize    = 1_000      // records of one page
	renderedOrders = 200_000    // kept as text in memory, about 36 MB; later ones are written when asked for
)

// firstOrderAt is when the first order was placed; each next one is some
// minutes later. A fixed date keeps the data equal from run to run.
var firstOrderAt = time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC)

// The words that records are made of.
var (
	givenNames = []string{"Amara", "Bruno", "Chiara", "Dmitri", "Elif", "Farah", "Goran", "Hana", "Ines", "Jonas", "Katya", "Liam", "Mara", "Nils", "Oona", "Priya"}
	surnames   = []string{"Abbott", "Berg", "Castro", "Demir", "Eriksen", "Fontaine", "Gupta", "Hoffman", "Ito", "Jansen", "Kowalski", "Lund", "Moreau", "Novak", "Okafor", "Petrov"}
	cities     = []string{"Athens", "Bergen", "Dublin", "Graz", "Lisbon", "Malaga", "Oslo", "Porto", "Riga", "Turin", "Utrecht", "Zagreb"}
	tiers      = []string{"bronze", "silver", "gold"}
	statuses   = []string{"placed", "packed", "shipped", "delivered", "returned"}
	products   = []string{"copper kettle", "walnut tray", "linen apron", "oak stool", "brass lamp", "wool throw", "clay teapot", "steel ladle", "glass carafe", "pine crate"}
)

// Order is one order as JSON has it. TotalCents is the order's value in
// hundredths of its currency: whole numbers, so that sums are exact.
type Order struct {
	ID         string    `json:"id"`
	CustomerID string    `json:"customerId"`
	Status     string    `json:"status"`
	Product    string    `json:"product"`
	Quantity   int       `json:"quantity"`
	Currency   string    `json:"currency"`
	TotalCents int       `json:"totalCents"`
	PlacedAt   time.Time `json:"placedAt"`
}

// Customer is one customer as JSON has it.
type Customer struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
	City  string `json:"city"`
	Tier  string `json:"tier"`
}

// data is the content of the order system: a pure function of its seed.
type data struct {
	seed      uint64
	customers int
	orders    int

	text    []byte // the first renderedOrders orders, each followed by a comma
	offsets []int  // where in text order i begins; one more at the end
}

// newData makes the content and writes the orders that are kept as text.
func newData(seed uint64, customers, orders int) *data {
	d := &data{seed: seed, customers: customers, orders: orders}
	n := min(orders, renderedOrders)
	text := make([]byte, 0, n*200)
	offsets := make([]int, 0, n+1)
	for i := range n {
		offsets = append(offsets, len(text))
		text = append(d.appendOrder(text, i), ',')
	}
	d.text, d.offsets = text, append(offsets, len(text))
	return d
}

// roll gives the pseudo-random number of record i of a kind (splitmix64).
func (d *data) roll(kind, i int) uint64 {
	z := d.seed + uint64(kind)<<56 + (uint64(i)+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// pick takes one of the words by some bits of a roll.
func pick(words []string, bits uint64) string { return words[bits%uint64(len(words))] }

// order gives order i, from 0.
func (d *data) order(i int) Order {
	r := d.roll(1, i)
	quantity := 1 + int(r>>40%5)
	return Order{
		ID:         orderID(i),
		CustomerID: customerID(int(r % uint64(d.customers))),
		Status:     pick(statuses, r>>16),
		Product:    pick(products, r>>24),
		Quantity:   quantity,
		Currency:   "EUR",
		TotalCents: quantity * (900 + int(r>>44%19_100)),
		PlacedAt:   firstOrderAt.Add(time.Duration(i) * 7 * time.Minute),
	}
}

// customer gives customer i, from 0.
func (d *data) customer(i int) Customer {
	r := d.roll(2, i)
	given, surname := pick(givenNames, r), pick(surnames, r>>8)
	return Customer{
		ID:    customerID(i),
		Name:  given + " " + surname,
		Email: strings.ToLower(fmt.Sprintf("%s.%s.%d@example.com", given, surname, i+1)),
		City:  pick(cities, r>>16),
		Tier:  pick(tiers, r>>24),
	}
}

// orderID and customerID name record i, from 0; numbers in ids start at 1.
func orderID(i int) string    { return padded("ord_", i+1, 8) }
func customerID(i int) string { return padded("cus_", i+1, 5) }

// padded writes a prefix and a number with zeros in front, at least width digits.
func padded(prefix string, n, width int) string {
	digits := strconv.Itoa(n)
	return prefix + strings.Repeat("0", max(0, width-len(digits))) + digits
}

// numberOf reads the record number, from 0, out of an id with a prefix.
func numberOf(id, prefix string) (int, bool) {
	if len(id) <= len(prefix) || id[:len(prefix)] != prefix {
		return 0, false
	}
	n, err := strconv.Atoi(id[len(prefix):])
	return n - 1, err == nil && n > 0
}

// appendOrder appends the JSON of order i, about 180 bytes. It writes what
// encoding/json would, with less work: none of the words needs escaping.
func (d *data) appendOrder(dst []byte, i int) []byte {
	o := d.order(i)
	for _, field := range [...]struct{ name, value string }{
		{`{"id":"`, o.ID}, {`","customerId":"`, o.CustomerID}, {`","status":"`, o.Status}, {`","product":"`, o.Product},
	} {
		dst = append(append(dst, field.name...), field.value...)
	}
	dst = strconv.AppendInt(append(dst, `","quantity":`...), int64(o.Quantity), 10)
	dst = append(append(dst, `,"currency":"`...), o.Currency...)
	dst = strconv.AppendInt(append(dst, `","totalCents":`...), int64(o.TotalCents), 10)
	dst = o.PlacedAt.AppendFormat(append(dst, `,"placedAt":"`...), time.RFC3339)
	return append(dst, `"}`...)
}

// appendOrders appends the orders from..to-1, separated by commas.
func (d *data) appendOrders(dst []byte, from, to int) []byte {
	if from >= to {
		return dst
	}
	if to < len(d.offsets) {
		return append(dst, d.text[d.offsets[from]:d.offsets[to]-1]...)
	}
	for i := from; i < to; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		dst = d.appendOrder(dst, i)
	}
	return dst
}

// appendCustomers appends the customers from..to-1, separated by commas.
func (d *data) appendCustomers(dst []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		dst = appendJSON(dst, d.customer(i))
	}
	return dst
}

// appendJSON appends the JSON of a value of this package, none of which can
// fail to be written.
func appendJSON(dst []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("demo: %T has no JSON: %v", v, err))
	}
	return append(dst, text...)
}
