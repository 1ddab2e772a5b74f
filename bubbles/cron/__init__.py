"""Time: the jobs, when each is due, and the message that a due one sends to its session.

It does not know what a job means, nor any session, model or platform: a job is words that come back at a time.

    schedule.py   when is the next beat (pure)            jobs.py      the file that holds the jobs
    when.py       what people write for a time (pure)     service.py   what is due is sent
                                                          ops.py       what can be asked at the door
"""
