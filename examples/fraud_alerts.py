"""Payments to fraud alerts: three of a card within a minute, with a processor, a store and a punctuator.

Run it on Spark with `millstream run fraud_alerts:topology`; here it runs in this process.
"""

from __future__ import annotations

from millstream import Processor, ProcessorContext, PunctuationType, Record, StreamsBuilder, serdes, stores
from millstream.testing import TopologyTestDriver

MINUTE = 60_000
TOO_MANY = 3
PAYMENTS = [  # card, amount, milliseconds
    ("4711", 20.0, 1_000),
    ("4711", 35.5, 20_000),
    ("8888", 12.0, 21_000),
    ("4711", 99.0, 40_000),  # the third within a minute
    ("8888", 15.0, 150_000),
    ("4711", 10.0, 151_000),  # alone in its minute
]


class FraudAlerts(Processor[str, float, str, float]):
    """Keeps the times of each card's last payments; every minute those of quiet cards are deleted."""

    def init(self, context: ProcessorContext[str, float]) -> None:
        super().init(context)
        self.times = context.state_store("payment-times")
        context.schedule(MINUTE, PunctuationType.STREAM_TIME, self.forget)

    def process(self, record: Record[str, float]) -> None:
        since = record.timestamp - MINUTE
        times = [time for time in self.times.get(record.key) or [] if time > since] + [record.timestamp]
        self.times.put(record.key, times)
        if len(times) >= TOO_MANY:
            self.context.forward(record)

    def forget(self, timestamp: int) -> None:
        for card, times in list(self.times.all()):
            if times[-1] <= timestamp - MINUTE:
                self.times.delete(card)


builder = StreamsBuilder()
builder.add_state_store(stores.key_value("payment-times", key=serdes.string, value=serdes.json))
payments = builder.stream("payments", key=serdes.string, value=serdes.double)
payments.process(FraudAlerts, "payment-times").to("alerts", key=serdes.string, value=serdes.double)
topology = builder.build()

if __name__ == "__main__":
    with TopologyTestDriver(topology) as driver:
        source = driver.input_topic("payments", key=serdes.string, value=serdes.double)
        for card, amount, time in PAYMENTS:
            source.pipe(card, amount, timestamp=time)
        for alert in driver.output_topic("alerts", key=serdes.string, value=serdes.double).read_all():
            print(f"card {alert.key}: {TOO_MANY} payments within a minute, the last of {alert.value:.2f}")
